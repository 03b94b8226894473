"""Parts that the steps after a classifier share: scores from logits, and labels from a file."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read_labels(path: Path, at_least: int = 1) -> np.ndarray:
    """The labels of a UTF-8 text file, one per line: object [classes] of bytes.

    Raises:
        ValueError: an empty line, text that is not UTF-8, or fewer labels than `at_least`.
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
    if len(lines) < at_least:
        raise ValueError(f"{path}: found {len(lines)} labels, wanted at least {at_least}")
    return np.array(lines, dtype=object)


def read_logits(step: Any, request: Any, classes: int, softmax: bool) -> np.ndarray:
    """The input logits [batch, classes] of a request; raises ValueError for those that have no scores."""
    logits: np.ndarray = step.read(request, "logits")
    try:
        check_logits(logits, classes, softmax)
    except ValueError as error:
        raise ValueError(f"input 'logits': {error}") from error
    return logits


def split(outputs: Mapping[str, np.ndarray], batches: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Outputs of joined batches as those of each batch."""
    edges = pairwise([0, *accumulate(len(batch) for batch in batches)])
    return [{name: array[start:stop] for name, array in outputs.items()} for start, stop in edges]


def check_logits(logits: np.ndarray, classes: int | None, softmax: bool) -> None:
    """Refuse logits [batch, ..., width] that have no scores.

    Raises:
        ValueError: no logits; a width other than the number of labels; NaN; with softmax, no finite maximum.
    """
    if classes is not None and logits.shape[-1] != classes:
        raise ValueError(f"found {logits.shape[-1]} logits, wanted {classes}, one per label")
    if not logits.shape[-1]:
        raise ValueError("found no logits, wanted at least one")
    best = logits.max(axis=-1)  # NaN wherever a row has one
    unfit = ~np.isfinite(best) if softmax else np.isnan(best)
    if unfit.any():
        place = tuple(int(index) for index in np.argwhere(unfit)[0])
        token = f", token {place[1]}" if len(place) > 1 else ""
        raise ValueError(f"item {place[0]}{token}: the largest logit is {best[place]}, wanted a finite number")


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of the last axis's classes, of which one is the case; the largest logit must be finite."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """A probability for each logit by itself."""
    return np.asarray(np.exp(-np.logaddexp(np.float32(0), -logits)))
