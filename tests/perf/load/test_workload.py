"""Checks of answers: the right one passes, each kind of wrong one is named."""

from __future__ import annotations

import numpy as np
import pytest

from tritonkit.perf.load import expect_embedding, expect_label, expect_like


def label(*texts: bytes) -> dict[str, np.ndarray]:
    """An answer with these labels, best first."""
    return {"label": np.array([texts], dtype=object)}


def test_the_best_label_is_compared() -> None:
    """The first of the row counts, the others do not."""
    check = expect_label("3")
    assert check(label(b"3", b"8")) == ""
    assert check(label(b"8", b"3")) == "label 8, expected 3"


def unit(*numbers: float) -> np.ndarray:
    """A vector of length 1."""
    vector = np.array(numbers, np.float32)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("vector", "wrong"),
    [
        (unit(1, 2, 2), ""),
        (unit(1, 2, 2.01), ""),
        (unit(1, 2, 2) * 1.01, "length"),
        (unit(2, 2, 1), "cosine"),
        (np.full(3, np.nan, np.float32), "length"),
        (unit(1, 2), "2 numbers, expected 3"),
    ],
)
def test_an_embedding_has_length_1_and_the_known_direction(vector: np.ndarray, wrong: str) -> None:
    """Rounding passes; another length, direction, size, or NaN is wrong."""
    reason = expect_embedding(unit(1, 2, 2))({"embedding": vector[None]})
    assert wrong in reason
    assert bool(reason) == bool(wrong)


def test_an_answer_of_a_model_without_known_answers_keeps_its_form() -> None:
    """Types and shapes as at first, finite numbers; the values may differ."""
    first = {"y": np.ones((1, 2), np.float32), "t": np.array([[b"a"]], dtype=object)}
    check = expect_like(first)
    assert check({"y": np.zeros((1, 2), np.float32), "t": np.array([[b"b"]], dtype=object)}) == ""
    assert "y is not float32 [1, 2]" in check(first | {"y": np.ones((1, 3), np.float32)})
    assert "NaN" in check(first | {"y": np.full((1, 2), np.inf, np.float32)})
    assert "t is not" in check({"y": first["y"]})
