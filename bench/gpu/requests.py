"""The requests of `make gpu`: images, texts of mixed lengths, vectors; the same for the engine and for the server.

Used by the server environment's Python too: numpy and the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Item", "items", "padded"]

Item = dict[str, NDArray[Any]]
"""Arrays by input name."""

_LENGTHS = (7, 130)
"""Tokens of the shortest and the longest text, as sentences to paragraphs have."""


def items(kind: str, count: int, pixels: int = 224, most: int = 130, seed: int = 1) -> list[Item]:
    """Requests of one item each, without the batch axis.

    Args:
        kind: the model's name up to its first underscore: resnet50, encoder or mlp.
        count: the number of requests.
        pixels: the height and width of images.
        most: an upper bound of a text's tokens.
        seed: the same seed gives the same requests.
    """
    random = np.random.default_rng(seed)
    if kind == "resnet50":
        return [{"pixels": random.integers(0, 256, (3, pixels, pixels), np.uint8)} for _ in range(count)]
    if kind == "mlp":
        return [{"x": random.random(64, dtype=np.float32)} for _ in range(count)]
    lengths = random.integers(min(_LENGTHS[0], most), min(_LENGTHS[1], most) + 1, count)
    return [{"input_ids": random.integers(1, 256, n), "attention_mask": np.ones(n, np.int64)} for n in lengths]


def padded(batch: Sequence[Item]) -> Item:
    """One batch of several requests, filled up with zeros to the longest."""
    whole: Item = {}
    for name in batch[0]:
        rows = [item[name] for item in batch]
        longest = max(row.shape[0] for row in rows)
        whole[name] = np.stack([np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]) for row in rows])
    return whole
