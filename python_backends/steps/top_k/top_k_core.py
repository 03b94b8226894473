"""Rank scores to the k best labels: the step `labels` without a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import labels_core
import numpy as np


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1
    softmax: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        labels_core.Settings(self.k)


def top_k(logits: np.ndarray, labels: np.ndarray, settings: Settings) -> dict[str, np.ndarray]:
    """The step's outputs, best first, ties by lower index.

    Args:
        logits: float32 [batch, classes] that passed `check_logits`.
        labels: object [classes] of bytes.
        settings: k at most the number of classes.

    Returns:
        label: object [batch, k]; score: float32 [batch, k], probabilities with `softmax`.
    """
    function = "softmax" if settings.softmax else "none"
    outputs = labels_core.label_logits(logits, labels, labels_core.Settings(settings.k, function))
    return {name: outputs[name] for name in ("label", "score")}
