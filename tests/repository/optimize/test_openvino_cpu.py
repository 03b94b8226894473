"""OpenVINO as the engine that measures: shapes, precision, counters, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from openvino import opset13 as op

from tritonkit.errors import BuildError
from tritonkit.repository.optimize.openvino_core import PRECISION_ENTRY, first_reason
from tritonkit.repository.optimize.runtimes.openvino_cpu import open_runner


def save(folder: Path, shape: list[int], precision: str = "f32") -> Path:
    """y = relu(x W), with W 4 x 4, computed as told; its folder."""
    x = op.parameter(shape, np.float32, "x")
    x.output(0).set_names({"x"})
    weights = op.constant(np.eye(4, dtype=np.float32) * 1.001)
    y = op.relu(op.matmul(x, weights, False, False))
    y.output(0).set_names({"y"})
    model = openvino.Model([y], [x])
    model.set_rt_info(precision, PRECISION_ENTRY)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    return folder


def batch(*shape: int) -> dict[str, Any]:
    """Counting values."""
    return {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}


def test_any_batch_and_free_axis_runs(tmp_path: Path) -> None:
    """Shapes come and go, answers of earlier runs stay."""
    for shape, sizes in (([-1, 4], [(n, 4) for n in range(1, 8)]), ([-1, -1, 4], [(2, 3, 4), (1, 9, 4)])):
        runner = open_runner(save(tmp_path, shape), 1, "test")
        answers = [runner.run(batch(*size)) for size in (*sizes, *sizes)]
        for size, answer in zip((*sizes, *sizes), answers, strict=True):
            assert list(answer) == ["y"]
            np.testing.assert_allclose(answer["y"], batch(*size)["x"] * 1.001, rtol=1e-6)


def test_input_that_is_read_only_or_strided(tmp_path: Path) -> None:
    """Both are what slices of a sample may be."""
    runner = open_runner(save(tmp_path, [-1, 4]), 1, "test")
    wide = batch(2, 8)["x"]
    wide.flags.writeable = False
    np.testing.assert_allclose(runner.run({"x": wide[:, ::2]})["y"], wide[:, ::2] * 1.001, rtol=1e-6)


def test_precision_of_the_file_is_used(tmp_path: Path) -> None:
    """FP32 keeps three digits that bfloat16, where the processor has it, does not."""
    exact = open_runner(save(tmp_path, [-1, 4]), 1, "test").run(batch(8, 4))["y"]
    half = open_runner(save(tmp_path, [-1, 4], "bf16"), 1, "test").run(batch(8, 4))["y"]
    np.testing.assert_allclose(exact, batch(8, 4)["x"] * 1.001, rtol=1e-6)
    has_half = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert np.array_equal(half, exact) != has_half
    np.testing.assert_allclose(half, exact, rtol=0.02)


def test_operators_are_timed(tmp_path: Path) -> None:
    """The matrix product is among them, and each took some time in the mean of its runs."""
    times = open_runner(save(tmp_path, [-1, 4]), 1, "test").profile(batch(512, 4), 3)
    assert any("MatMul" in time.kind or "FullyConnected" in time.kind for time in times)
    assert all(time.name and 0 <= time.ms < 1000 for time in times)
    assert sum(time.ms for time in times) > 0


@pytest.mark.parametrize(("given", "message"), [(batch(2, 5), "x [2, 5]"), ({"z": batch(2, 4)["x"]}, "z [2, 4]")])
def test_input_that_does_not_fit(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    """The error names the shapes that were tried, in a line."""
    with pytest.raises(BuildError) as caught:
        open_runner(save(tmp_path, [-1, 4]), 1, "test").run(given)
    assert caught.value.where == "test"
    assert f"OpenVINO cannot run it on {message}: " in caught.value.found
    assert "\n" not in caught.value.found


def test_file_that_is_not_whole(tmp_path: Path) -> None:
    """A truncated file is refused when it is opened."""
    file = save(tmp_path, [-1, 4]) / "model.xml"
    file.write_text(file.read_text()[:300])
    with pytest.raises(BuildError, match=r"OpenVINO refuses model\.xml"):
        open_runner(tmp_path, 1, "test")


def test_reason_without_source_lines() -> None:
    """OpenVINO's messages begin with files of its own."""
    error = RuntimeError("Exception from src/a.cpp:1:\nCheck 'x' failed at src/b.cpp:2:\nNo such input\n\n")
    assert first_reason(error) == "No such input"
    assert first_reason(RuntimeError("Exception from src/a.cpp:1:")) == "Exception from src/a.cpp:1:"
