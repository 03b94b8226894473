"""Networks that are one matrix, their measured quality, and arrays in files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.repository.optimize.small_specs import built
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.artifact import MeasuredQuality
from tritonkit.repository.modelspec import Spec

WEIGHTS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def linear(weights: np.ndarray, shape: list[int | str], name: str = "x", dtype: int = TensorProto.FLOAT) -> bytes:
    """An ONNX file: y [batch, rows of weights] of an input that is flattened."""
    nodes = [
        helper.make_node("Cast", [name], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["f"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", len(weights)])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def measured(spec: Spec, tmp_path: Path) -> MeasuredQuality:
    """The quality of onnx-fp32."""
    quality = built(spec, BuildCache(tmp_path / "cache")).quality
    assert quality is not None
    return quality


def npz(**arrays: np.ndarray) -> bytes:
    """An .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()
