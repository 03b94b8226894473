"""Half precision: FP16 where it holds, FP32 where it does not; BF16 weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tests.repository.optimize.variants.onnx_nets import (
    Array,
    cosine,
    folder,
    kinds,
    make_job,
    model,
    perceptron,
    random,
    residual,
    run,
    words,
)
from tritonkit.errors import BuildError
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.variants import onnx_bf16, onnx_fp16
from tritonkit.repository.optimize.variants.onnx_half import Half

FP16 = onnx_fp16.make
BF16 = onnx_bf16.make
IMAGES = random(8, 3, 8, 8, seed=9)
ROWS = random(16, 32, seed=9)
INDICES = np.random.default_rng(9).integers(0, 100, (4, 7))


@pytest.mark.slow
@pytest.mark.parametrize("make", [FP16, BF16])
@pytest.mark.parametrize(("network", "x"), [(residual(), IMAGES), (perceptron(), ROWS), (words(), INDICES)])
def test_half_the_bytes_and_nearly_the_same_outputs(
    write_model: WriteModel,
    tmp_path: Path,
    make: Callable[[Job, Path], tuple[str, ...]],
    network: onnx.ModelProto,
    x: Array,
) -> None:
    """Inputs and outputs stay FP32; no large FP32 weight is left."""
    out = folder(tmp_path)
    make(make_job(write_model, network, [x]), out)
    made = onnx.load(out / "model.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert made.graph.input == network.graph.input
    assert made.graph.output == network.graph.output
    assert cosine(run(made, x), run(network, x)) > 0.9999
    large = [t for t in made.graph.initializer if np.prod(t.dims) > 200]
    assert large
    assert TensorProto.FLOAT not in {t.data_type for t in large}


def scaled(up: float, down: float) -> onnx.ModelProto:
    """x -> MatMul, times `up`, times `down`, MatMul -> y."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "first"),
        node("Mul", ["a", "up"], ["b"], "up"),
        node("Mul", ["b", "down"], ["c"], "down"),
        node("MatMul", ["c", "w2"], ["y"], "last"),
    ]
    weights = {
        "w1": random(32, 32, seed=1),
        "w2": random(32, 32, seed=2),
        "up": np.array(up, np.float32),
        "down": np.array(down, np.float32),
    }
    return model(nodes, weights, ["batch", 32], ["batch", 32])


def test_what_overflows_stays_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """The operators that give and take values beyond 65504 are named, and nothing between them is FP16."""
    out = folder(tmp_path)
    network = scaled(20_000.0, 1 / 20_000)
    notes = FP16(make_job(write_model, network, [ROWS]), out)
    assert "2 of 4 operators FP16" in notes
    assert "FP32, because values are beyond FP16's range: up, down" in notes
    made = onnx.load(out / "model.onnx")
    up, down = (next(n for n in made.graph.node if n.name == name) for name in ("up", "down"))
    assert up.output[0] == down.input[0]
    assert cosine(run(made, ROWS), run(network, ROWS)) > 0.9999


def test_the_imitation_shows_an_overflow_that_the_cpu_provider_hides() -> None:
    """All in FP16, ONNX Runtime's CPU gives numbers, because it computes in FP32; a GPU would not."""
    half = Half(scaled(20_000.0, 1 / 20_000))
    assert np.isfinite(run(half.write([]), ROWS)).all()
    assert not np.isfinite(run(half.write([], imitated=True), ROWS)).all()
    kept = ["up", "down"]
    assert np.isfinite(run(half.write(kept, imitated=True), ROWS)).all()


def test_a_constant_beyond_the_range_keeps_its_operator_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """A mask of -3.4e38 times zero never overflows, but the constant would be infinite, and give NaN."""
    node = helper.make_node
    nodes = [
        node("Sub", ["x", "x"], ["nothing"], "difference"),
        node("Mul", ["nothing", "lowest"], ["mask"], "mask"),
        node("Add", ["x", "mask"], ["a"], "masked"),
        node("MatMul", ["a", "w"], ["y"], "product"),
    ]
    weights = {"lowest": np.array(np.finfo(np.float32).min), "w": random(32, 32)}
    network = model(nodes, weights, ["batch", 32], ["batch", 32])
    out = folder(tmp_path)
    notes = FP16(make_job(write_model, network, [ROWS]), out)
    assert "FP32, because values are beyond FP16's range: mask" in notes
    assert cosine(run(out / "model.onnx", ROWS), run(network, ROWS)) > 0.9999


def test_what_loses_too_much_stays_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """A small difference of large numbers: found by comparing, and named."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "first"),
        node("Add", ["a", "large"], ["b"], "plus"),
        node("Sub", ["b", "large"], ["c"], "minus"),
        node("MatMul", ["c", "w2"], ["d"], "second"),
        node("Relu", ["d"], ["e"], "relu"),
        node("MatMul", ["e", "w1"], ["y"], "last"),
    ]
    weights = {
        "w1": random(32, 32, seed=1, scale=0.2),
        "w2": random(32, 32, seed=2, scale=0.2),
        "large": np.array(30_000, np.float32),
    }
    network = model(nodes, weights, ["batch", 32], ["batch", 32])
    notes = FP16(make_job(write_model, network, [ROWS]), folder(tmp_path))
    assert any(n.startswith("FP32, because they cost most closeness: ") for n in notes)
    left = next(n for n in notes if "cost most" in n).partition(": ")[2].split(", ")
    assert {"plus", "minus"} <= set(left)
    assert "last" not in left


def test_a_network_that_fp16_cannot_hold_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """Nothing but integers, or nothing that stays close: the error says so and what to build instead."""
    node = helper.make_node
    cast = model([node("Cast", ["x"], ["y"], to=1)], {}, ["b", 4], ["b", 4], TensorProto.INT64)
    with pytest.raises(BuildError, match="no operator that could be FP16"):
        FP16(make_job(write_model, cast, [INDICES[:, :4]]), folder(tmp_path))


def test_operators_without_an_fp16_form_are_cast_around(write_model: WriteModel, tmp_path: Path) -> None:
    """TopK is not FP16 in ONNX Runtime, a Shape looks at no values, and inputs of Resize are FP32."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        node("Resize", ["a", "", "scales"], ["b"], "resize", mode="nearest"),
        node("Shape", ["b"], ["s"], "shape"),
        node("Reshape", ["b", "s"], ["c"], "reshape"),
        node("TopK", ["c", "k"], ["d", "places"], "top"),
        node("Relu", ["d"], ["y"], "relu"),
    ]
    weights = {"w": random(4, 3, 3, 3), "scales": np.array([1, 1, 2, 2], np.float32)}
    network = model(nodes, weights, ["batch", 3, 8, 8], ["batch", 4, 16, 5])
    network.graph.initializer.append(numpy_helper.from_array(np.array([5]), "k"))
    out = folder(tmp_path)
    notes = FP16(make_job(write_model, network, [IMAGES]), out)
    assert "4 of 4 operators FP16" in notes
    made = onnx.load(out / "model.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert cosine(run(made, IMAGES), run(network, IMAGES)) > 0.9999


def test_bf16_weights_are_unpacked_on_loading(write_model: WriteModel, tmp_path: Path) -> None:
    """At a run there is no cast of weights; the rows of a table are cast when they are looked up."""
    out = folder(tmp_path)
    BF16(make_job(write_model, words(), [INDICES]), out)
    counts = kinds(onnx.load(out / "model.onnx"), tmp_path)
    assert (counts["Gather"], counts["MatMul"], counts["Cast"]) == (1, 1, 1)


def test_bf16_rounds_to_the_nearest(write_model: WriteModel, tmp_path: Path) -> None:
    """Halfway goes to the even one, as IEEE 754 has it."""
    given = np.array([[1.0, 1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, -3.3895314e38]], np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    network = model([product], {"w": given}, ["batch", 1], ["batch", 5])
    out, one = folder(tmp_path), np.ones((1, 1), np.float32)
    BF16(make_job(write_model, network, [one]), out)
    output = run(out / "model.onnx", one)[0]
    assert list(output) == [1.0, 1.0, 1.0, 1 + 2**-6, pytest.approx(-3.3895314e38)]


def test_bf16_needs_a_layer(write_model: WriteModel, tmp_path: Path) -> None:
    """A network without weights has nothing to halve."""
    network = model([helper.make_node("Relu", ["x"], ["y"])], {}, ["batch", 4], ["batch", 4])
    with pytest.raises(BuildError, match="no operator with weights that could be BF16"):
        BF16(make_job(write_model, network, [random(2, 4)]), folder(tmp_path))


def test_a_network_of_which_the_runtime_dies_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """ONNX Runtime 1.24 to 1.31 ends the process that loads this one; later versions may load it."""
    node = helper.make_node
    nodes = [node("Transpose", ["x"], ["t"], "turned", perm=[1, 0, 2]), node("MatMul", ["t", "w"], ["y"], "product")]
    network = model(nodes, {"w": random(32, 8)}, ["batch", 10, 32], [10, "batch", 8])
    more = "serving: {max_batch_size: 0}"
    job = make_job(write_model, network, [random(3, 10, 32)], more)
    out = folder(tmp_path)
    refused: BuildError | None = None
    try:
        FP16(job, out)
    except BuildError as error:
        refused = error
    if refused is not None:
        assert "dies (SIGSEGV) when it loads it" in refused.found
        assert "onnx-bf16" in refused.todo
    else:
        assert run(out / "model.onnx", random(3, 10, 32)).shape == (10, 3, 8)
