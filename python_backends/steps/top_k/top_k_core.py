"""Rank scores to the k best labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1
    softmax: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.k < 1:
            raise ValueError(f"parameter k: found {self.k}, wanted at least 1")


def top_k(logits: np.ndarray, labels: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels and their scores, best first, ties by lower index.

    Args:
        logits: float32 [batch, classes] that passed `check_logits`.
        labels: object [classes].
        settings: k at most the number of classes.

    Returns:
        labels: object [batch, k]; scores: float32 [batch, k], probabilities with `softmax`.
    """
    order = np.argsort(-logits, axis=1, kind="stable")[:, : settings.k]
    scores = np.take_along_axis(logits, order, axis=1)
    if settings.softmax:
        highest = scores[:, :1]
        total = np.exp(logits - highest).sum(axis=1, keepdims=True)
        scores = np.exp(scores - highest) / total
    return labels[order], scores
