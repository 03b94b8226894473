"""Quadrilaterals made straight: bicubic interpolation as OpenCV's warpPerspective has it.

Pillow's bicubic filter is sharper and cuts values off where OpenCV rounds, and a recognizer of text sees that.
"""

from __future__ import annotations

import numpy as np

SHARPNESS = np.float32(-0.75)
PARTS = 32
"""Pixels are found to this part of a pixel."""
BLOCK = 1 << 16
"""Pixels that are computed together."""


def warped(values: np.ndarray, size: tuple[int, int], coefficients: list[float]) -> np.ndarray:
    """The pixels of a new image, each at its place in an old one, whose last pixels go on outside of it.

    Args:
        values: uint8 [height, width, channels].
        size: width and height of the result.
        coefficients: those of `projection` from pixels of the new image to pixels of the old.
    """
    width, height = size
    result = np.empty((height, width, values.shape[2]), np.uint8)
    across = min(width, BLOCK)
    down = BLOCK // across
    for top in range(0, height, down):
        for left in range(0, width, across):
            block = result[top : top + down, left : left + across]
            y, x = np.ogrid[top : top + block.shape[0], left : left + block.shape[1]]
            block[...] = _sampled(values, x.astype(np.float64), y.astype(np.float64), coefficients)
    return result


def _sampled(values: np.ndarray, x: np.ndarray, y: np.ndarray, coefficients: list[float]) -> np.ndarray:
    """The pixels of columns x [1, width] and rows y [height, 1] of the new image: float32 [height, width, channels]."""
    a, b, c, d, e, f, g, h = coefficients
    flat = values.reshape(-1, values.shape[2])
    depth = g * x + h * y + 1
    columns, across = _taps((a * x + b * y + c) / depth, values.shape[1])
    rows, down = _taps((d * x + e * y + f) / depth, values.shape[0])
    total = np.zeros((*depth.shape, values.shape[2]), np.float32)
    for row, weight in zip(rows, down, strict=True):
        line = sum(flat[row * values.shape[1] + column] * part for column, part in zip(columns, across, strict=True))
        total += line * weight
    return np.clip(total + np.float32(0.5), 0, 255)


def _taps(places: np.ndarray, size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The four pixels around each place, and their weights float32 [..., 1]."""
    places = np.round(np.clip(places, -2, size + 1) * PARTS) / PARTS
    first = np.floor(places)
    x = (places - first).astype(np.float32)
    outer = [((SHARPNESS * t - 5 * SHARPNESS) * t + 8 * SHARPNESS) * t - 4 * SHARPNESS for t in (x + 1, 2 - x)]
    inner = ((SHARPNESS + 2) * x - (SHARPNESS + 3)) * x * x + 1
    weights = [outer[0], inner, 1 - outer[0] - inner - outer[1], outer[1]]
    at = first.astype(np.intp)
    return [np.clip(at + tap, 0, size - 1) for tap in (-1, 0, 1, 2)], [weight[..., None] for weight in weights]
