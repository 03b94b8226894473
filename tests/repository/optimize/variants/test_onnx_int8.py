"""The 8-bit forms, made of real jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.conftest import WriteModel
from tests.repository.optimize.variants.onnx_nets import (
    Array,
    cosine,
    folder,
    make_job,
    model,
    perceptron,
    random,
    residual,
    run,
)
from tritonkit.errors import BuildError
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.variants.int8_cpu import largest_weight
from tritonkit.repository.optimize.variants.onnx_int8 import make_dynamic, make_static

Make = Callable[[Job, Path], tuple[str, ...]]
STATIC, DYNAMIC = make_static, make_dynamic
IMAGES = random(8, 3, 8, 8, seed=9)
SEVEN_BITS = "weights of those layers within 7 bits, for CPUs without VNNI"

pytestmark = pytest.mark.usefixtures("each_cpu")


def test_a_convolutional_network_becomes_bytes(write_model: WriteModel, tmp_path: Path) -> None:
    """One file, by the first method, all layers in bytes, close to FP32."""
    out = folder(tmp_path)
    notes = STATIC(make_job(write_model, residual(), [IMAGES[:5], IMAGES[5:]]), out)
    assert [file.name for file in out.iterdir()] == ["model.onnx"]
    assert notes[0] == "ranges by minmax"
    assert "3 of 3 layers compute in INT8" in notes
    assert cosine(run(out / "model.onnx", IMAGES), run(residual(), IMAGES)) > 0.999


def outlier() -> tuple[onnx.ModelProto, Array]:
    """A perceptron and input with one value that widens the range so that all others round to nothing."""
    x = random(2000, 32, seed=3)
    x[7, 5] = 300.0
    return perceptron(), x


def test_methods_are_tried_until_one_is_close(write_model: WriteModel, tmp_path: Path) -> None:
    """Min-max is not close, percentile is; entropy, which comes after, is not tried."""
    network, x = outlier()
    more = "quality: {max_drop: 0.05}"
    optimize = "{calibration: data:given, calibration_methods: [minmax, percentile, entropy]}"
    notes = STATIC(make_job(write_model, network, [x], more, optimize), folder(tmp_path))
    assert notes[0].startswith("ranges by percentile (minmax 0.")
    assert "entropy" not in notes[0]
    assert "2 of 2 layers compute in INT8" in notes


def sensitive() -> tuple[onnx.ModelProto, Array]:
    """Four products, of which the second reads numbers of which a few are far larger than the rest."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "one"),
        node("Mul", ["a", "stretch"], ["b"], "stretched"),
        node("MatMul", ["b", "w2"], ["c"], "two"),
        node("MatMul", ["c", "w3"], ["d"], "three"),
        node("MatMul", ["d", "w4"], ["y"], "four"),
    ]
    weights = {f"w{place}": random(64, 64, seed=place, scale=0.1) for place in range(1, 5)}
    stretch = np.ones(64, np.float32)
    stretch[:2] = 1000
    weights["w2"][:2] = 0  # large columns do not count, and the columns that count are lost next to them
    network = model(nodes, {**weights, "stretch": stretch}, ["batch", 64], ["batch", 64])
    return network, random(50, 64, seed=8)


def test_the_layer_that_costs_most_is_left_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """No method can hold both sizes of numbers: the note names the one layer that stays FP32."""
    network, x = sensitive()
    lines: list[str] = []
    job = make_job(write_model, network, [x])
    job.say = lines.append
    out = folder(tmp_path)
    notes = STATIC(job, out)
    assert "left FP32, because they cost most closeness: two" in notes
    assert "3 of 4 layers compute in INT8" in notes
    assert "trying layer 4 of 4" in lines
    assert cosine(run(out / "model.onnx", x), run(network, x)) > 0.992


def test_no_data_are_needed_for_dynamic_ranges(write_model: WriteModel, tmp_path: Path) -> None:
    """Without `optimize.calibration` the file is made, and nothing is compared; the note says what this
    CPU makes of the weights."""
    out = folder(tmp_path)
    notes = DYNAMIC(make_job(write_model, perceptron(), [], optimize="{}"), out)
    narrow = (SEVEN_BITS,) if largest_weight() < 127 else ()
    assert notes == ("2 of 2 layers compute in INT8", *narrow)
    x = random(4, 32)
    assert cosine(run(out / "model.onnx", x), run(perceptron(), x)) > 0.999


def test_with_data_dynamic_layers_are_left_fp32_too(write_model: WriteModel, tmp_path: Path) -> None:
    """The same layer costs closeness when its range is found at each run."""
    network, x = sensitive()
    notes = DYNAMIC(make_job(write_model, network, [x]), folder(tmp_path))
    assert "left FP32, because they cost most closeness: two" in notes


def test_convolutions_keep_bytes_in_the_file_alone(write_model: WriteModel, tmp_path: Path) -> None:
    """In the dynamic form, the linear layer computes in bytes, and the note names the layers that do not."""
    out = folder(tmp_path)
    notes = DYNAMIC(make_job(write_model, residual(), [IMAGES]), out)
    assert "1 of 3 layers compute in INT8" in notes
    assert "2 keep 8-bit weights in the file and compute in FP32" in notes
    assert cosine(run(out / "model.onnx", IMAGES), run(residual(), IMAGES)) > 0.999


@pytest.mark.parametrize("make", [STATIC, DYNAMIC])
@pytest.mark.parametrize(
    ("drop", "note"),
    [(1e-4, "2 keep 8-bit weights in the file and compute in FP32"), (1e-7, "weights left FP32, too: first, second")],
)
def test_the_search_ends_only_where_it_is_close_enough(
    write_model: WriteModel, tmp_path: Path, make: Make, drop: float, note: str
) -> None:
    """FP32 layers reach a closeness that INT8 layers cannot; FP32 weights one that INT8 weights cannot."""
    out, x = folder(tmp_path), random(50, 32, seed=8)
    notes = make(make_job(write_model, perceptron(), [x], f"quality: {{max_drop: {drop}}}"), out)
    assert "0 of 2 layers compute in INT8" in notes
    assert note in notes
    assert not any("below" in note for note in notes)
    assert SEVEN_BITS not in notes
    assert cosine(run(out / "model.onnx", x), run(perceptron(), x)) > 1 - drop


@pytest.mark.parametrize("make", [STATIC, DYNAMIC])
def test_a_network_without_layers_is_refused(write_model: WriteModel, tmp_path: Path, make: Make) -> None:
    """The error says what was looked for."""
    network = model([helper.make_node("Relu", ["x"], ["y"])], {}, ["batch", 4], ["batch", 4])
    with pytest.raises(BuildError, match="no operator with weights that could be 8-bit"):
        make(make_job(write_model, network, [random(2, 4)]), folder(tmp_path))


def test_an_older_operator_set_is_brought_forward(write_model: WriteModel, tmp_path: Path) -> None:
    """Set 11 has no scale per channel: the file is written in a later one."""
    network = perceptron()
    network.opset_import[0].version = 11
    out = folder(tmp_path)
    STATIC(make_job(write_model, network, [random(9, 32)]), out)
    assert onnx.load(out / "model.onnx").opset_import[0].version >= 13
