"""Resize without averaging: each pixel lies between two along each axis, in OpenCV's fixed point (INTER_LINEAR)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from decode_image_geometry import Box, Size

ONE = 1 << 11
"""Shares of pixels are whole numbers of this."""
BLOCK = 1 << 18
"""Values that are computed together: more take memory, and do not fit the processor's cache."""


def linear(values: np.ndarray, size: Size, box: Box) -> np.ndarray:
    """A part of an image in another size.

    Args:
        values: uint8 [height, width, channels].
        size: width and height of the result.
        box: left, top, right and bottom of the part.
    """
    left, top, right, bottom = box
    columns = _columns(left, right, size[0], values.shape)
    first, second, rest, share = _pairs(top, bottom, size[1], values.shape[0])
    result = np.empty((size[1], size[0] * values.shape[2]), np.uint8)
    step = max(1, BLOCK // (max(values.shape[1], size[0]) * values.shape[2]))
    for start in range(0, size[1], step):
        block = slice(start, start + step)
        # Only the rows that are used: of a long image, millions may lie between them.
        rows, places = np.unique([first[block], second[block]], return_inverse=True)
        upper, lower = places.reshape(2, -1)
        across = _across(values[rows], columns)
        # In place: each new array takes as much time as a pass over it.
        total = across[upper]
        total *= rest[block, None]
        total >>= 16
        below = across[lower]
        below *= share[block, None]
        below >>= 16
        total += below
        total += 2
        total >>= 2
        result[block] = total
    return result.reshape(size[1], size[0], values.shape[2])


def _across(values: np.ndarray, columns: tuple[np.ndarray, ...]) -> np.ndarray:
    """Rows of an image at other columns, times `ONE / 16`: int32 [rows, columns * channels]."""
    low, high, rest, share = columns
    values = values.reshape(len(values), -1)
    total = np.asarray(np.take(values, low, axis=1) * rest)
    total += np.take(values, high, axis=1) * share
    total >>= 4
    return total


def _columns(left: float, right: float, width: int, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The pairs of a row's values: as one axis with the channels, they are computed several times as fast."""
    low, high, rest, share = _pairs(left, right, width, shape[1])
    channels = np.arange(shape[2])
    values = [(pixels[:, None] * shape[2] + channels).ravel() for pixels in (low, high)]
    return *values, np.repeat(rest, shape[2]), np.repeat(share, shape[2])


def _pairs(start: float, stop: float, to: int, size: int) -> tuple[np.ndarray, ...]:
    """The two of `size` pixels between which each of `to` lies, and their shares, int32."""
    places = np.clip(start + (np.arange(to) + 0.5) * ((stop - start) / to) - 0.5, 0, size - 1).astype(np.float32)
    low = np.floor(places)
    share = (places - low) * np.float32(ONE)
    low = low.astype(np.intp)
    rest = np.float32(ONE) - share
    return low, np.minimum(low + 1, size - 1), np.rint(rest).astype(np.int32), np.rint(share).astype(np.int32)
