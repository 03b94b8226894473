"""Metrics of a variant compared with its reference, and their confidence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tritonkit.repository.export.closeness import differences, item_cosines, mean_cosine
from tritonkit.repository.export.scores import bootstrap_drop

Batches = list[dict[str, np.ndarray]]


def outputs(*rows: list[float]) -> Batches:
    """One batch with a row for each item."""
    return [{"y": np.array(rows, dtype=np.float32)}]


def test_the_interval_of_a_drop_holds_the_true_drop() -> None:
    """With 200 samples and a true drop of 0.05, the 95 % interval holds it in about 95 % of the cases."""
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        reference = random.random(150) < 0.9
        values = reference & (random.random(150) > 0.05 / 0.9)
        low, high = bootstrap_drop(values, reference)
        hits += low <= 0.05 <= high
    assert 180 <= hits <= 198


def test_pairs_are_kept_together() -> None:
    """Equal scores have no drop, however they vary from item to item."""
    scores = np.random.default_rng(0).random(50)
    assert bootstrap_drop(scores, scores) == (0.0, 0.0)


def test_the_interval_is_the_same_in_every_run() -> None:
    """It is drawn with a fixed seed: a build must not pass today and fail tomorrow."""
    random = np.random.default_rng(2)
    values, reference = random.random(80), random.random(80)
    assert bootstrap_drop(values, reference) == bootstrap_drop(values, reference)


@pytest.mark.parametrize(
    ("values", "reference", "cosine"),
    [
        ([3.0, 4.0], [6.0, 8.0], 1.0),
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([0.0, 0.0], [0.0, 0.0], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 0.0),
        ([math.nan, 1.0], [1.0, 1.0], -1.0),
        ([math.inf, 1.0], [math.inf, 1.0], 1.0),
    ],
)
def test_cosine_of_an_item(values: list[float], reference: list[float], cosine: float) -> None:
    """Zeros equal zeros, what is not finite is as far as can be, unless the reference has it too."""
    assert item_cosines(outputs(values), outputs(reference)) == pytest.approx([cosine])


def test_all_outputs_of_an_item_count_as_one_vector() -> None:
    """A small output does not weigh as much as a large one."""
    reference = [{"a": np.array([[1.0]]), "b": np.array([[0.0, 100.0]])}]
    values = [{"a": np.array([[-1.0]]), "b": np.array([[0.0, 100.0]])}]
    assert mean_cosine(values, reference) > 0.999


def test_one_bad_item_spoils_the_mean() -> None:
    """A network that gives NaN for one item is not close."""
    assert mean_cosine(outputs([1, 1], [math.nan, 1]), outputs([1, 1], [1, 1])) == -1.0


def test_differences_are_counted_by_powers_of_ten() -> None:
    """Every element is in one class: equal, up to an edge, or beyond all of them."""
    values = outputs([1.0, 1.0005, 2.0, 5e6])
    counts = differences(values, outputs([1.0, 1.0, 1.0, 1.0]))
    assert {edge: count for edge, count in counts.items() if count} == {"0": 1, "1e-03": 1, "1e+00": 1, "more": 1}
