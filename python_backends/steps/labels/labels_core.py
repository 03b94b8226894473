"""Turn logits into labels: the best k, or those above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from step_scores import sigmoid, softmax

FUNCTIONS = ("softmax", "sigmoid", "none")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1
    function: str = "softmax"
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.k < 1:
            raise ValueError(f"parameter k: found {self.k}, wanted at least 1")
        if self.function not in FUNCTIONS:
            raise ValueError(f"parameter function: found '{self.function}', wanted one of {', '.join(FUNCTIONS)}")
        if not math.isfinite(self.threshold):
            raise ValueError(f"parameter threshold: found {self.threshold}, wanted a number")


def label_logits(logits: np.ndarray, labels: np.ndarray, settings: Settings) -> dict[str, np.ndarray]:
    """The step's outputs, best first, ties by lower index.

    Args:
        logits: float32 [batch, classes] that passed `check_logits`.
        labels: object [classes] of bytes.
        settings: k at most the number of classes.

    Returns:
        label: object [batch, k]; score: float32 [batch, k]; count: int32 [batch, 1], the labels that are not empty.
    """
    order = np.argsort(-logits, axis=1, kind="stable")[:, : settings.k]
    functions = {"softmax": softmax, "sigmoid": sigmoid}
    scores = functions[settings.function](logits) if settings.function in functions else logits
    best = np.take_along_axis(scores, order, axis=1)
    kept = best >= np.float32(settings.threshold) if settings.threshold else np.ones_like(best, dtype=bool)
    return {
        "label": np.where(kept, labels[order], b""),
        "score": np.where(kept, best, np.float32(0)),
        "count": kept.sum(axis=1, keepdims=True, dtype=np.int32),
    }
