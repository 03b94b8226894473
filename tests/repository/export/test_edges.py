"""Decisions that rounding alone turns over: explained where the network moves as much, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.repository.export.graphs import FLOAT, INT64, node, onnx_bytes
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.edges import settle_edges
from tritonkit.repository.modelspec.quality import Tolerance
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.quality import measure
from tritonkit.repository.optimize.runtimes import RUNTIMES

TOLERANCE = Tolerance()
WEIGHTS = np.float32(np.random.default_rng(0).standard_normal((4, 3, 3, 3)))
SCALE = np.float32(0.37)
SPEC = "name: net\nnetwork: {onnx: m.onnx}\n"

# Two convolutions that are equal up to rounding; optimized, one joins its factor, and they are equal to the bit.
TIES = onnx_bytes(
    [
        node("Conv", ["x", "w"], ["c"]),
        node("Mul", ["c", "s"], ["a"]),
        node("Conv", ["x", "ws"], ["b"]),
        node("GreaterOrEqual", ["a", "b"], ["first"]),
        node("Where", ["first", "hundred", "c"], ["y"]),
    ],
    [("x", FLOAT, [1, 3, 16, 16])],
    [("y", FLOAT, [1, 4, 14, 14])],
    {"w": WEIGHTS, "s": SCALE, "ws": WEIGHTS * SCALE, "hundred": np.float32(100.5)},
)


def sorted_rows(folder: Path, scores: list[float]) -> Path:
    """A network that sorts scores, each times x, and gives their places too."""
    file = folder / "m.onnx"
    file.write_bytes(
        onnx_bytes(
            [node("Mul", ["x", "scores"], ["s"]), node("TopK", ["s", "k"], ["best", "place"])],
            [("x", FLOAT, [1, 1])],
            [("best", FLOAT, [1, len(scores)]), ("place", INT64, [1, len(scores)])],
            {"scores": np.float32([scores]), "k": np.int64([len(scores)])},
        )
    )
    return file


def test_a_network_whose_ties_rounding_decides_is_built(write_model: WriteModel, root: Path) -> None:
    """The optimized graph decides ties as another one; the build says how many values that are."""
    artifact = build(plan(write_model(SPEC, m__onnx=TIES), BuildCache(root)), BuildCache(root))
    assert artifact.quality is not None
    assert artifact.quality.value == pytest.approx(1.0)
    count, _, total = artifact.quality.edges.split(" ")[:3]
    assert 0 < int(count) < int(total) == 2 * 4 * 14 * 14  # of two samples
    assert artifact.quality.edges in artifact.notes


def wrong(job: Job, folder: Path) -> None:
    """Measure a network that differs from its reference by a hundredth."""
    content = job.source.read_bytes().replace(np.float32(100.5).tobytes(), np.float32(101.5).tobytes())
    (folder / "model.onnx").write_bytes(content)
    runner = RUNTIMES["onnxruntime"](folder, 1, "here")
    measure(job, runner, lossless=True, file=folder / "model.onnx")


def test_a_difference_that_rounding_does_not_make_is_still_an_error(
    write_model: WriteModel, root: Path, tmp_path: Path
) -> None:
    """Ties next to it excuse nothing."""
    job = job_of(write_model(SPEC, m__onnx=TIES), BuildCache(root))
    with pytest.raises(BuildError, match="reference's 100"):
        wrong(job, tmp_path)


def test_only_rows_of_a_tie_may_change_places(tmp_path: Path) -> None:
    """Rows 1 and 2 differ by less than a millionth; the others are far from each other."""
    file = sorted_rows(tmp_path, [9.0, 3.3000004, 3.3, 1.7])
    given = [{"x": np.float32([[1.1]])}]
    best = np.float32([[9.0, 3.3000004, 3.3, 1.7]]) * np.float32(1.1)
    reference = [{"best": best, "place": np.array([[0, 1, 2, 3]])}]
    tied = [{"best": best, "place": np.array([[0, 2, 1, 3]])}]
    settled, text = settle_edges(file, given, tied, reference, TOLERANCE)
    assert settled[0]["place"].tolist() == [[0, 1, 2, 3]]
    assert text.startswith("2 of 8 values")
    other = [{"best": best, "place": np.array([[3, 1, 2, 0]])}]
    settled, text = settle_edges(file, given, other, reference, TOLERANCE)
    assert (settled[0]["place"].tolist(), text) == ([[3, 1, 2, 0]], "")


@pytest.mark.parametrize(("x", "explained"), [(2.0, True), (5.0, False)])
def test_the_number_of_rows_may_change_at_a_threshold(tmp_path: Path, x: float, explained: bool) -> None:
    """A last row on the threshold may be missing; far from it one row less is an error."""
    file = tmp_path / "m.onnx"
    file.write_bytes(
        onnx_bytes(
            [
                node("Mul", ["x", "w"], ["s"]),
                node("Greater", ["s", "t"], ["m"]),
                node("Cast", ["m"], ["i"], to=INT64),
                node("NonZero", ["i"], ["y"]),
            ],
            [("x", FLOAT, [3])],
            [("y", INT64, [1, "found"])],
            {"w": np.float32([1.5, 1.5, 0.7]), "t": np.float32(1.4000001)},
        )
    )
    given = [{"x": np.full(3, x, "f")}]
    reference, outputs = [{"y": np.array([[0, 1, 2]])}], [{"y": np.array([[0, 1]])}]
    settled, text = settle_edges(file, given, outputs, reference, TOLERANCE)
    assert (settled[0]["y"].shape == (1, 3)) is explained
    assert bool(text) is explained
