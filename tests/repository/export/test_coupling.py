"""Rounded networks whose answers depend on their neighbors: found by an outlier, judged by the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.repository.export.coupling import judge_neighbors
from tritonkit.repository.export.outliers import moves, score_next_to
from tritonkit.repository.export.scores import Score
from tritonkit.repository.modelspec.quality import Tolerance

Batch = dict[str, Any]
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.standard_normal((16, 8)).astype(np.float32)
SAMPLES = [{"x": RANDOM.standard_normal((4, 16)).astype(np.float32)} for _ in range(4)]


def product(axis: int | None, most: float = np.inf) -> Callable[[Batch], Batch]:
    """x @ w with x in 8 bits: one range for the batch (None), or for each row (1); x beyond `most` is cut off."""

    def run(batch: Batch) -> Batch:
        x = np.clip(batch["x"], -most, most)
        step = np.maximum(np.abs(x).max(axis=axis, keepdims=True), 1e-9) / 127
        return {"y": (np.rint(x / step) * step) @ WEIGHTS}

    return run


@pytest.mark.parametrize(
    ("run", "moving"),
    [
        (product(1), ()),
        (product(None), ("1000 times as large", "another item")),
        (lambda batch: {"y": batch["x"] @ WEIGHTS}, ()),
        (lambda batch: {"y": batch["x"] - batch["x"].mean(0)}, ("1000 times as large", "zeros", "another item")),
    ],
    ids=["row by row", "one range", "fp32", "a mean over the batch"],
)
def test_what_moves_the_others(run: Callable[[Batch], Batch], moving: tuple[str, ...]) -> None:
    """Zeros widen no range; an outlier does."""
    moved = moves(run, SAMPLES, Tolerance(absolute=1e-4, relative=1e-3))
    assert set(moved) >= set(moving[:1])
    assert bool(moved) is bool(moving)


def test_the_worst_neighbor_counts() -> None:
    """Next to 1000 times as large a value, 8 bits leave nothing of an answer; the score is of the samples alone."""
    reference = [{"y": batch["x"] @ WEIGHTS} for batch in SAMPLES]

    def score(outputs: list[Batch]) -> Score:
        assert [len(batch["y"]) for batch in outputs] == [4, 4, 4, 4]
        pairs = zip(outputs, reference, strict=True)
        return Score("closeness", -max(float(np.abs(a["y"] - b["y"]).max()) for a, b in pairs), 0.0)

    worst = score_next_to(product(None), SAMPLES, ("zeros", "1000 times as large"), score)
    assert worst.kind == "1000 times as large"
    assert worst.score.value < -1


def spec_text(drop: float) -> str:
    """A spec whose metric is the default one."""
    return f"name: net\nnetwork: {{onnx: net.onnx}}\nquality: {{max_drop: {drop}}}\n"


def test_rows_with_ranges_of_their_own_are_independent(write_model: WriteModel) -> None:
    """Nothing moves, so nothing is measured."""
    result = judge_neighbors(write_model(spec_text(0.01), net__onnx=b""), product(1), SAMPLES)
    assert result.state == "proven"
    assert result.seen == "outliers next to an item do not change its answer"


def test_a_bounded_coupling_is_kept_within_the_gate(write_model: WriteModel) -> None:
    """An input that is cut off at 5 widens the range a little: within a drop of 0.01, and not within 1e-6."""
    run = product(None, most=5)
    result = judge_neighbors(write_model(spec_text(0.01), net__onnx=b""), run, SAMPLES)
    assert result.state == "proven"
    assert result.seen.startswith("within quality.max_drop: next to an")
    assert judge_neighbors(write_model(spec_text(1e-6), net__onnx=b""), run, SAMPLES).state == "coupled"


def test_a_coupling_beyond_the_gate_takes_batches_away(write_model: WriteModel) -> None:
    """The reason names the neighbor, what is lost, and what one item at a time costs."""
    spec = write_model(spec_text(0.01), net__onnx=b"")
    result = judge_neighbors(spec, product(None), SAMPLES, "output y of item 1 changes")
    assert result.state == "coupled"
    assert result.seen.startswith(
        "output y of item 1 changes: next to an item 1000 times as large, R2 falls from 1.0000 alone to "
    )
    assert "times the items per second" in result.seen


def test_what_no_outlier_moves_keeps_its_first_reason(write_model: WriteModel) -> None:
    """A coupling of another kind, seen before, is not explained away."""
    spec = write_model(spec_text(0.01), net__onnx=b"")
    result = judge_neighbors(spec, product(1), SAMPLES, "output y differs by order")
    assert (result.state, result.seen) == ("coupled", "output y differs by order")
