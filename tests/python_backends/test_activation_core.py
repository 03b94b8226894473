"""activation without Triton, and the scores that it shares with other steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from activation_core import Settings, activate
from step_scores import sigmoid, softmax

LOGITS = np.array([[1, 3, -2, 3], [0, -7, 0.5, 20]], np.float32)


def exact(logits: np.ndarray, function: str) -> np.ndarray:
    """The same in float64."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide)
    return powers / powers.sum(axis=1, keepdims=True) if function == "softmax" else 1 / (1 + np.exp(-wide))


@pytest.mark.parametrize("function", ["softmax", "sigmoid"])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_probabilities(function: str, temperature: float) -> None:
    """Both functions agree with float64, after the temperature."""
    scores = activate(LOGITS, Settings(function, temperature))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, exact(LOGITS / temperature, function), rtol=2e-6)


def test_other_functions() -> None:
    """argmax marks the first of the largest, threshold all from it on, none leaves logits as they are."""
    assert activate(LOGITS, Settings("argmax")).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert activate(LOGITS, Settings("threshold", threshold=0.5)).tolist() == [[1, 1, 0, 1], [0, 0, 1, 1]]
    assert activate(LOGITS, Settings("none")).tolist() == LOGITS.tolist()
    assert activate(LOGITS, Settings("none", temperature=2.0)).tolist() == (LOGITS / 2).tolist()
    for function in ("argmax", "threshold", "none"):
        assert activate(LOGITS, Settings(function)).dtype == np.float32


def test_large_logits_have_scores() -> None:
    """Neither function overflows, small probabilities stay exact, and a masked class has none."""
    far = np.array([[-1000, 1000, -np.inf], [-90, -30, 3e38]], np.float32)
    assert sigmoid(far).tolist()[0] == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(sigmoid(far)[1], [np.exp(-90.0), np.exp(-30.0), 1], rtol=1e-5)
    assert softmax(far).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert sigmoid(np.array([[np.inf]], np.float32)).tolist() == [[1.0]]


def test_argmax_is_of_the_logits_themselves() -> None:
    """A temperature that makes them infinite, or zero, does not change which is the largest."""
    assert activate(np.float32([[2e38, 3e38]]), Settings("argmax", 0.1)).tolist() == [[0, 1]]
    assert activate(np.float32([[1e-30, 2e-30]]), Settings("argmax", 1e38)).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("logits", "values", "message"),
    [
        ([[0, 1], [0, np.nan]], {"function": "softmax"}, "item 1: the largest logit is nan, wanted a finite number"),
        ([[0, 1], [0, np.nan]], {"function": "none"}, "item 1: the largest logit is nan"),
        ([[np.inf, 1]], {"function": "softmax"}, "item 0: the largest logit is inf"),
        ([[-np.inf, -np.inf]], {"function": "softmax"}, "item 0: the largest logit is -inf"),
        ([[1, 3e38]], {"function": "softmax", "temperature": 0.1}, "item 0: the largest logit is inf"),
        ([[1, 3e38]], {"function": "none", "temperature": 0.1}, "item 0: the score of class 1 is inf, wanted a finite"),
        ([[0, 1], [np.inf, 1]], {"function": "none"}, "item 1: the score of class 0 is inf"),
        ([[-np.inf, 1]], {"function": "none"}, "item 0: the score of class 0 is -inf"),
        ([[]], {}, "found no logits"),
    ],
)
def test_logits_without_scores_are_refused(logits: list[list[float]], values: dict[str, Any], message: str) -> None:
    """The item is named; nothing becomes NaN."""
    with pytest.raises(ValueError, match=message):
        activate(np.array(logits, np.float32), Settings(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"function": "relu"}, "function: found 'relu', wanted one of softmax"),
        ({"temperature": 0.0}, "temperature: found 0.0, wanted a number above 0"),
        ({"temperature": float("nan")}, "temperature: found nan"),
        ({"temperature": 1e-46}, "temperature: found 1e-46, wanted a number above 0 that FP32 has"),
        ({"temperature": 1e39}, "temperature: found 1e.39"),
        ({"threshold": -1e39}, "threshold: found -1e.39"),
        ({"threshold": float("inf")}, "threshold: found inf"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)
