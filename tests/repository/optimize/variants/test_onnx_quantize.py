"""INT8 networks: what ONNX Runtime makes of them, and how close they stay."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.repository.optimize.variants.onnx_nets import (
    Array,
    MakeNet,
    cosine,
    kinds,
    model,
    perceptron,
    random,
    residual,
    run,
    words,
)
from tritonkit.repository.optimize.variants.int8_cpu import largest_weight
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator
from tritonkit.repository.optimize.variants.onnx_quantize import Quantizer
from tritonkit.repository.optimize.variants.onnx_weights import WeightLayers

pytestmark = pytest.mark.usefixtures("each_cpu")


def written(
    network: onnx.ModelProto, x: Array | None, floats: Collection[str] = (), whole: Collection[str] = ()
) -> onnx.ModelProto:
    """The network in bytes, with ranges of x; without x, dynamic ones. Whole by onnx's own check."""
    layers = WeightLayers(network)
    ranges = None
    if x is not None:
        ranges = Calibrator(network, layers.tensors, [{"x": x}], True, "here").by("minmax")
    made = Quantizer(layers, largest_weight(), ranges, floats, whole).write()
    onnx.checker.check_model(made, full_check=True)
    return made


IMAGES = random(8, 3, 8, 8, seed=9)
ROWS = random(16, 32, seed=9)
INDICES = np.random.default_rng(9).integers(0, 100, (4, 7))


@pytest.mark.parametrize(("make", "x"), [(residual, IMAGES), (perceptron, ROWS), (words, INDICES)])
@pytest.mark.parametrize("way", ["static", "dynamic", "packed"])
def test_every_way_stays_close_to_fp32(make: MakeNet, x: Array, way: str) -> None:
    """Mean cosine above 0.999, on networks of all kinds of layers; signature and names as before."""
    network = make()
    floats = WeightLayers(network).products if way == "packed" else ()
    made = written(network, None if way == "dynamic" else x, floats)
    assert cosine(run(made, x), run(network, x)) > 0.999
    assert made.graph.input == network.graph.input
    assert made.graph.output == network.graph.output
    names = {node.name for node in made.graph.node}
    assert {*WeightLayers(network).names} <= names
    assert not any(t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims) > 200 for t in made.graph.initializer), (
        "large float weights are left"
    )


def test_onnx_runtime_melts_the_pairs_into_operators_of_bytes(tmp_path: Path) -> None:
    """Convolutions, the residual sum, pooling and the linear layer all run in 8 bits; both Relus are gone."""
    counts = kinds(written(residual(), IMAGES), tmp_path)
    assert (counts["QLinearConv"], counts["QLinearAdd"], counts["QGemm"]) == (2, 1, 1)
    assert not {"Conv", "Add", "Gemm", "Relu", "DequantizeLinear"} & set(counts)
    assert counts["QuantizeLinear"] == 1, "of the input alone"


def test_each_product_of_bytes_is_one_operator(tmp_path: Path) -> None:
    """A MatMul that finds the ranges of rows; one with a known range, which gives bytes to the next, or FP32."""
    dynamic = kinds(written(perceptron(), None), tmp_path)
    assert dynamic["MatMulIntegerToFloat"] == 2
    assert dynamic["DynamicQuantizeLinear"] == 0
    static = kinds(written(perceptron(), ROWS), tmp_path)
    assert (static["QLinearMatMul"], static["MatMulIntegerToFloat"]) == (1, 1)
    assert not {"MatMul", "Relu", "DequantizeLinear"} & set(static)


def test_dynamic_ranges_belong_to_rows() -> None:
    """An item gets the same answer, bit for bit, alone and next to one that is a million times as large, or zeros."""
    made = written(perceptron(), None)
    alone = run(made, ROWS[:1])
    for factor in (1e6, 0.0, -1e3):
        together = run(made, np.concatenate([ROWS[:1], ROWS[1:] * np.float32(factor)]))
        assert (together[:1] == alone).all()
        assert np.isfinite(together).all()


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_dynamic_ranges_in_older_operators(opset: int) -> None:
    """ReduceMax takes its axes as an attribute until opset 17."""
    network = perceptron()
    network.opset_import[0].version = opset
    assert cosine(run(written(network, None), ROWS), run(network, ROWS)) > 0.999


def test_a_layer_left_fp32_computes_so_and_is_still_bytes_in_the_file(tmp_path: Path) -> None:
    """The second convolution is FP32 when loaded, without a step at each run; its weights are int8."""
    made = written(residual(), IMAGES, ["second"])
    counts = kinds(made, tmp_path)
    assert (counts["Conv"] + counts["FusedConv"], counts["QLinearConv"]) == (1, 1)
    assert counts["Cast"] == 0, "the weights are unpacked on loading"
    shapes = {tuple(t.dims): t.data_type for t in made.graph.initializer}
    assert shapes[8, 8, 3, 3] == onnx.TensorProto.INT8
    assert cosine(run(made, IMAGES), run(residual(), IMAGES)) > 0.999


def test_what_a_relu_leaves_is_what_a_layer_beside_it_reads() -> None:
    """With the second convolution FP32, the sum still sees no negative numbers of the first."""
    network = residual()
    # Without its Relu the first convolution's negative numbers would pass straight through the sum.
    network.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(8, -5, np.float32), "b1"))
    expected = run(network, IMAGES)
    assert cosine(run(written(network, IMAGES, ["second"]), IMAGES), expected) > 0.999
    assert cosine(run(written(network, IMAGES, ["first", "second"]), IMAGES), expected) > 0.999


def test_a_convolution_at_the_end_keeps_its_outputs_name() -> None:
    """The graph's output is what the bytes say, under the same name."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "only")]
    network = model(nodes, {"w": random(16, 3, 5, 5)}, ["batch", 3, 8, 8], ["batch", 16, 4, 4])
    made = written(network, IMAGES)
    assert made.graph.node[-1].output[0] == "y"
    assert cosine(run(made, IMAGES), run(network, IMAGES)) > 0.999


def test_a_bias_far_larger_than_the_products_is_kept() -> None:
    """In steps of both scales it would not fit 32 bits: the weights' scale grows instead."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "only")]
    weights = {"w": random(32, 4, scale=1e-6), "b": np.array([3e4, -3e4, 1, 0], np.float32)}
    network = model(nodes, weights, ["batch", 32], ["batch", 4])
    assert np.allclose(run(written(network, ROWS), ROWS), run(network, ROWS), atol=1e-3)


def test_rows_of_a_table_keep_a_scale_of_their_own() -> None:
    """A row ten thousand times smaller than another loses no more of itself."""
    network = words()
    made = written(network, None, ["product"])
    for row in (0, 99):
        x = np.full((1, 1), row)
        assert cosine(run(made, x), run(network, x)) > 0.999


def test_a_small_table_is_left_alone() -> None:
    """Two rows for two kinds of token are not worth three operators."""
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"], "lookup")]
    network = model(nodes, {"table": random(2, 64)}, ["batch", 1], ["batch", 1, 64], onnx.TensorProto.INT64)
    assert WeightLayers(network).names == []


def test_a_product_of_two_activations_is_no_layer() -> None:
    """Only constant weights can be bytes beforehand; a scaled or transposed Gemm is left FP32, too."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "x"], ["a"], "both"),
        node("Gemm", ["a", "w"], ["b"], "scaled", alpha=0.5),
        node("Gemm", ["b", "w"], ["y"], "transposed", transA=1),
    ]
    assert WeightLayers(model(nodes, {"w": random(4, 4)}, [4, 4], [4, 4])).names == []


def test_seven_bits_are_for_products_alone() -> None:
    """If products saturate, no weight of one is beyond 64; weights that are only stored keep 8 bits."""
    layers = WeightLayers(perceptron())
    ranges = dict.fromkeys(layers.tensors, (-1.0, 1.0))
    made = Quantizer(layers, 64, ranges, ["second"]).write()
    stored = [numpy_helper.to_array(tensor) for tensor in made.graph.initializer]
    weights = [array for array in stored if array.dtype == np.int8 and array.ndim == 2]
    assert sorted(int(np.abs(array).max()) for array in weights) == [64, 127]


def test_weights_can_stay_fp32_too() -> None:
    """Nothing is rounded in a layer that is FP32 and `whole`."""
    network = perceptron()
    made = written(network, ROWS, ["first", "second"], ["first", "second"])
    assert (run(made, ROWS) == run(network, ROWS)).all()


def test_a_channel_of_zeros_does_no_harm() -> None:
    """Its scale is not zero."""
    network = perceptron()
    weight = numpy_helper.to_array(network.graph.initializer[0]).copy()
    weight[:, 3] = 0
    network.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w1"))
    assert cosine(run(written(network, ROWS), ROWS), run(network, ROWS)) > 0.999
