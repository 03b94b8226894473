"""ONNX files that are not FP32: compared with themselves as they are served, named for what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tests.repository.optimize.variants.onnx_nets import model, perceptron, random, residual
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.number_format import number_format
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator
from tritonkit.repository.optimize.variants.onnx_quantize import Quantizer
from tritonkit.repository.optimize.variants.onnx_weights import WeightLayers


def qdq() -> onnx.ModelProto:
    """A convolutional network as pairs of QuantizeLinear and DequantizeLinear."""
    layers = WeightLayers(residual())
    x = [{"x": random(8, 3, 8, 8)}]
    ranges = Calibrator(residual(), layers.tensors, x, True, "here").by("minmax")
    return Quantizer(layers, 127, ranges).write()


def dynamic() -> onnx.ModelProto:
    """A product as onnxruntime.quantization.quantize_dynamic writes it: one range for the whole tensor."""
    node = helper.make_node
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["bytes", "step", "zero"]),
        node("MatMulInteger", ["bytes", "w", "zero"], ["sums"]),
        node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["floats", "step"], ["y"]),
    ]
    weights = np.random.default_rng(0).integers(-127, 128, (32, 32)).astype(np.int8)
    return model(nodes, {"w": weights}, ["batch", 32], ["batch", 32])


def half(kind: int) -> onnx.ModelProto:
    """A product in FP16 or BF16 between casts."""
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["small"], to=kind),
        node("MatMul", ["small", "w"], ["product"]),
        node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    made = model(nodes, {}, ["batch", 32], ["batch", 32])
    weight = helper.make_tensor("w", kind, [32, 32], random(32, 32).ravel())
    made.graph.initializer.append(weight)
    return made


def of_operator(kind: str, **attributes: Any) -> onnx.ModelProto:
    """A graph with one operator, by which it is known; nothing runs it."""
    return model([helper.make_node(kind, ["x"], ["y"], **attributes)], {}, ["batch"], ["batch"])


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (perceptron(), ""),
        (residual(), ""),
        (qdq(), "INT8 (QDQ)"),
        (dynamic(), "INT8 (dynamic)"),
        (Quantizer(WeightLayers(perceptron()), 127, None).write(), "INT8 (dynamic)"),
        (of_operator("QLinearConv"), "INT8 (QOperator)"),
        (half(TensorProto.FLOAT16), "FP16"),
        (half(TensorProto.BFLOAT16), "BF16"),
        (of_operator("TreeEnsembleClassifier"), ""),
        (of_operator("MatMulNBits", bits=8), "INT8 (weights alone)"),
        (of_operator("MatMulNBits"), "INT4 (weights alone)"),
        (of_operator("DequantizeLinear"), "INT8 (weights alone)"),
    ],
    ids=lambda value: (value or "FP32") if isinstance(value, str) else "file",
)
def test_files_are_named_for_their_numbers(network: onnx.ModelProto, named: str) -> None:
    """The format follows from the operators, or from most of the weights."""
    assert number_format(network) == named


@pytest.mark.parametrize(
    ("network", "named"),
    [(qdq(), "INT8 (QDQ)"), (dynamic(), "INT8 (dynamic)"), (half(TensorProto.FLOAT16), "FP16")],
    ids=["qdq", "dynamic", "fp16"],
)
def test_a_file_is_compared_with_itself_as_it_is_served(
    write_model: WriteModel, root: Path, network: onnx.ModelProto, named: str
) -> None:
    """Without graph optimization a QDQ file rounds in more places, which is another network."""
    spec = write_model("name: net\nnetwork: {onnx: net.onnx}\n", net__onnx=network.SerializeToString())
    cache = BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    assert artifact.label == f"onnx-fp32 (the file: {named})"
    assert artifact.notes[0] == f"the file as it is: {named}, not FP32"
    assert artifact.quality is not None
    assert (artifact.quality.value, artifact.quality.max_difference) == (1.0, 0.0)
    assert artifact.quality.against == f"the {named} file"
    with pytest.raises(BuildError, match=f"onnx-int8-dynamic of a file that is {named[:4]}"):
        build(plan(spec, cache, variant="onnx-int8-dynamic"), cache)


def test_an_fp32_file_has_no_other_name(write_model: WriteModel, root: Path) -> None:
    """Neither in tables nor in notes, and it is compared with itself without optimizations."""
    spec = write_model("name: net\nnetwork: {onnx: net.onnx}\n", net__onnx=perceptron().SerializeToString())
    cache = BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    assert (artifact.label, artifact.number_format, artifact.notes) == ("onnx-fp32", "", ())
    assert artifact.quality is not None
    assert artifact.quality.against == "ONNX Runtime without optimizations"
