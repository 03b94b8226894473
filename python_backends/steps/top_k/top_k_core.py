"""Rank scores to the k best labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1
    softmax: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.k < 1:
            raise ValueError(f"parameter k: found {self.k}, wanted at least 1")


def read_labels(path: Path, k: int) -> np.ndarray:
    """The labels of a UTF-8 text file, one per line: object [classes] of bytes.

    Raises:
        ValueError: an empty line, text that is not UTF-8, or fewer labels than `k`.
    """
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    lines = [line.strip() for line in data.removesuffix(b"\n").split(b"\n")]
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ValueError(f"{path}: line {number} is empty, wanted a label")
    if len(lines) < k:
        raise ValueError(f"{path}: found {len(lines)} labels, wanted at least k = {k}")
    return np.array(lines, dtype=object)


def check_logits(logits: np.ndarray, classes: int, softmax: bool) -> None:
    """Refuse logits [batch, width] that cannot be ranked.

    Raises:
        ValueError: a width other than the number of labels; NaN; with softmax, no finite maximum.
    """
    if logits.shape[-1] != classes:
        raise ValueError(f"found {logits.shape[-1]} logits, wanted {classes}, one per label")
    best = logits.max(axis=1)  # NaN wherever a row has one
    unfit = ~np.isfinite(best) if softmax else np.isnan(best)
    if unfit.any():
        item = int(np.argmax(unfit))
        raise ValueError(f"item {item}: the largest logit is {best[item]}, wanted a finite number")


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
