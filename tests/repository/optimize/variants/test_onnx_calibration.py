"""Ranges of activations, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.repository.optimize.variants.onnx_nets import Array, model, perceptron, random, run
from tritonkit.errors import BuildError
from tritonkit.repository.optimize.variants import onnx_calibration
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator, entropy_threshold, percentile_limits


def ranges_of(batches: list[Array], method: str = "minmax") -> dict[str, tuple[float, float]]:
    """Ranges of a small network's input and output."""
    given = [{"x": batch} for batch in batches]
    return Calibrator(perceptron(), ["x", "y"], given, True, "here").by(method)


def test_minmax_is_over_all_batches_of_any_size() -> None:
    """Smallest and largest of three batches, one of them of a single item."""
    batches = [random(5, 32, seed=1), random(1, 32, seed=2), random(3, 32, seed=3)]
    ranges = ranges_of(batches)
    every = np.concatenate(batches)
    assert ranges["x"] == (every.min(), every.max())
    outputs = np.concatenate([run(perceptron(), batch) for batch in batches])
    assert ranges["y"] == pytest.approx((outputs.min(), outputs.max()), rel=1e-5)


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_parts_of_a_batch_give_what_the_whole_gives(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two items, the ranges are the same, and no run has more items."""
    batches = [random(7, 32, seed=1), random(4, 32, seed=2)]
    whole = ranges_of(batches, method)
    item = 2 * 32 * 4  # bytes of x and y of one item
    monkeypatch.setattr(onnx_calibration, "_BYTES", 2 * item)
    sizes: list[int] = []
    ranges = Calibrator(perceptron(), ["x", "y"], [{"x": b} for b in batches], True, "here")
    real = ranges._session

    class Counting:
        def run(self, names: list[str], feed: dict[str, Array]) -> list[Array]:
            sizes.append(len(feed["x"]))
            return list(real.run(names, feed))

    ranges._session = Counting()
    parts = ranges.by(method)
    assert max(sizes) == 2
    assert sum(sizes) == 11 * (1 if method == "minmax" else 2)
    for name, limits in whole.items():
        assert parts[name] == pytest.approx(limits, rel=0.02)


def test_percentile_and_entropy_leave_a_lone_outlier_out() -> None:
    """One value a hundred times the others' size widens the range by min-max alone."""
    batch = random(1000, 32)
    batch[0, 0] = 400.0
    wide, by_percentile, by_entropy = (ranges_of([batch], m)["x"] for m in ("minmax", "percentile", "entropy"))
    assert wide[1] == 400.0
    assert 3 < by_percentile[1] < 8
    # The narrowest that entropy tries has a bin for each of the 255 levels: a sixteenth of the whole.
    assert 3 < by_entropy[1] < 40


def test_entropy_keeps_what_is_evenly_spread() -> None:
    """Cutting off a uniform distribution loses information."""
    counts = np.ones(4096)
    low, high = entropy_threshold(counts, 2.0)
    assert (low, high) == (-2.0, 2.0)


def test_entropy_does_not_count_zeros() -> None:
    """Values that a Relu cut off do not narrow the range of those that it let through."""
    counts = np.zeros(4096)
    counts[2049:] = 1
    counts[2048] = 1e6
    assert entropy_threshold(counts, 1.0)[1] > 0.9


def test_percentile_of_a_histogram() -> None:
    """A ten-thousandth of the values lies outside, half of it at each end."""
    counts = np.zeros(4096)
    counts[1024], counts[2048], counts[3071] = 1, 99_998, 1
    low, high = percentile_limits(counts, 8.0)
    assert -0.01 < low <= 0 < high < 0.01


def test_nan_of_the_network_itself_is_named() -> None:
    """The error names the tensor."""
    network = model([helper.make_node("Sqrt", ["x"], ["y"], "root")], {}, ["batch", 2], ["batch", 2])
    ranges = Calibrator(network, ["x", "y"], [{"x": -np.ones((1, 2), np.float32)}], True, "there")
    with pytest.raises(BuildError, match="there: the FP32 network itself gives NaN in y"):
        ranges.by("minmax")


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_infinities_do_not_count(method: str) -> None:
    """A mask of minus infinity has no range; what else is in its tensor has."""
    network = model([helper.make_node("Log", ["x"], ["y"], "log")], {}, ["batch", 2], ["batch", 2])
    ranges = Calibrator(network, ["y"], [{"x": np.array([[0.0, 1.0], [0.0, 2.0]], np.float32)}], True, "")
    low, high = ranges.by(method)["y"]
    assert -0.01 < low <= 0
    assert high == pytest.approx(np.log(2), rel=0.01)
    nothing = Calibrator(network, ["y"], [{"x": np.zeros((3, 2), np.float32)}], True, "")
    assert nothing.by(method) == {}
