"""Masks from a segmentation network's logits: resized to the source, decided, written as COCO's run lengths or bytes.

Resizing is torch's `interpolate(mode="bilinear", align_corners=False)`, as transformers does it after a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from decode_image_geometry import check_frame, place, want
from mask_rle import as_json, runs_of_classes, runs_of_mask

OUTSIDE = 255
"""The class of pixels that the network did not see."""
BLOCK = 1 << 22  # values that are resized at a time
LARGEST = 1e38  # of a logit: the difference of two is finite in float32


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    function: str = "threshold"
    threshold: float = 0.5
    sigmoid: bool = True
    encoding: str = "rle"
    image_size: bool = True
    mask_height: int = 224
    mask_width: int = 224
    height: int = 224
    width: int = 224
    resize: str = "stretch"
    resize_to: int = 256
    max_values: int = 1 << 25

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        check_frame(self)
        for name in ("mask_height", "mask_width", "max_values"):
            want(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        want(self.function in ("threshold", "argmax"), "function", self.function, "threshold or argmax")
        want(self.encoding in ("rle", "counts", "pixels"), "encoding", self.encoding, "rle, counts or pixels")
        want(math.isfinite(self.threshold), "threshold", self.threshold, "a finite number")
        if self.sigmoid:
            want(0 < self.threshold < 1, "threshold", self.threshold, "above 0 and below 1, a probability")

    @property
    def cut(self) -> float:
        """The value above which a pixel belongs to a mask."""
        return math.log(self.threshold / (1 - self.threshold)) if self.sigmoid else self.threshold


@dataclass(frozen=True)
class Line:
    """Places of an output's pixels along a side of the logits: between two values each."""

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray
    """The share of the higher value, float32."""
    seen: np.ndarray
    """Whether the network saw the pixel."""

    def part(self, start: int, end: int) -> Line:
        """Pixels `start` to `end`."""
        return Line(self.low[start:end], self.high[start:end], self.share[start:end], self.seen[start:end])


def masks(logits: np.ndarray, sizes: np.ndarray | None, settings: Settings) -> dict[str, np.ndarray]:
    """The masks of each image.

    Args:
        logits: float32 [batch, channels, height, width].
        sizes: int64 [batch, 2], height and width of each source; None for masks of mask_height x mask_width.
        settings: the step's.

    Returns:
        rle: object [batch, channels]. With `pixels` mask: uint8 [batch, channels, height, width], 0 or 1, or with
        argmax [batch, height, width], the class, 255 where the network did not see; both as large as the largest
        image of the batch, with 0 or 255 outside an image's own size; and mask_size: int64 [batch, 2].

    Raises:
        ValueError: shapes that do not fit, values that are not finite, or too many; names the item.
    """
    _check(logits, settings)
    fixed = [[settings.mask_height, settings.mask_width]] * len(logits)
    shapes = np.array(fixed if sizes is None else sizes, dtype=np.int64).reshape(-1, 2)
    if (shapes < 0).any():
        raise ValueError(f"input 'image_size': found {shapes.min()}, wanted none below 0")
    _check_values(logits.shape[1], shapes, settings)
    if settings.encoding != "pixels":
        texts = [
            _texts(item, (int(size[0]), int(size[1])), settings) for item, size in zip(logits, shapes, strict=True)
        ]
        rle = np.empty((len(logits), logits.shape[1]), dtype=object)
        rle[:] = texts
        return {"rle": rle}
    largest = shapes.max(axis=0, initial=0)
    outer = (len(logits),) if settings.function == "argmax" else logits.shape[:2]
    pixels = np.full((*outer, *largest), OUTSIDE if settings.function == "argmax" else 0, np.uint8)
    for target, item, (height, width) in zip(pixels, logits, shapes, strict=True):
        target[..., :height, :width] = _decided(item, (height, width), settings)
    return {"mask": pixels, "mask_size": shapes}


def _check(logits: np.ndarray, settings: Settings) -> None:
    if 0 in logits.shape[1:]:
        raise ValueError(f"input 'logits': found shape {list(logits.shape[1:])}, wanted values")
    if settings.function == "argmax" and not 2 <= logits.shape[1] <= OUTSIDE:
        raise ValueError(f"input 'logits': found {logits.shape[1]} channels, wanted 2 to {OUTSIDE} for argmax")
    for index, item in enumerate(logits):
        if not (item.min() >= -LARGEST and item.max() <= LARGEST):  # neither holds for NaN
            raise ValueError(f"input 'logits', item {index}: a value is not finite, or beyond {LARGEST:g}")


def _check_values(channels: int, shapes: np.ndarray, settings: Settings) -> None:
    """Refuse masks of too many values; sides of 0 count as 1, because they still have rows or columns."""
    sides = [(max(1, height), max(1, width)) for height, width in shapes.tolist()]
    if settings.encoding == "pixels" and sides:  # each mask lies in the largest height and width of the batch
        heights, widths = zip(*sides, strict=True)
        count = len(sides) * channels * max(heights) * max(widths)
    else:
        count = channels * sum(height * width for height, width in sides)
    if count > settings.max_values:
        name = "image_size" if settings.image_size else "logits"
        raise ValueError(
            f"input '{name}': the masks have {count} values; at most {settings.max_values} are taken"
            " (parameter max_values)"
        )


def _texts(logits: np.ndarray, size: tuple[int, int], settings: Settings) -> list[bytes]:
    """The run lengths of an image's channels as JSON."""
    if settings.function == "argmax":
        runs = runs_of_classes(_decided(logits, size, settings), len(logits))
    else:  # one after the other, as each takes a byte per pixel
        runs = (runs_of_mask(_decided(channel[None], size, settings)[0]) for channel in logits)
    return [as_json(counts, size, settings.encoding == "rle") for counts in runs]


def _decided(logits: np.ndarray, size: tuple[int, int], settings: Settings) -> np.ndarray:
    """Each pixel's class, uint8 [height, width]; or whether it belongs to a mask, bool [channels, height, width]."""
    height, width = size
    rows, columns = _lines(size, logits.shape[1:], settings)
    unseen = ~(rows.seen[:, None] & columns.seen)
    if settings.function == "argmax":
        classes = np.empty(size, dtype=np.uint8)
        for start, end, values in _resized(logits, rows, columns):
            classes[start:end] = values.argmax(axis=0)
        classes[unseen] = OUTSIDE
        return classes
    inside = np.empty((len(logits), height, width), dtype=bool)
    for start, end, values in _resized(logits, rows, columns):
        np.greater(values, np.float32(settings.cut), out=inside[:, start:end])
    inside[:, unseen] = False
    return inside


def _lines(size: tuple[int, int], given: tuple[int, ...], settings: Settings) -> tuple[Line, Line]:
    """Rows and columns of a mask of this size on logits of a given height and width."""
    if 0 in size:
        return _line(np.zeros(size[0]), 1, given[0]), _line(np.zeros(size[1]), 1, given[1])
    middles = [np.arange(side) + 0.5 for side in size]
    if not settings.image_size:
        return _line(middles[0], size[0], given[0]), _line(middles[1], size[1], given[1])
    placed = place((size[1], size[0]), settings)
    sides = (settings.height, settings.width)
    rows, columns = (
        _line(
            (middles[axis] - placed.box[1 - axis]) / placed.scale[1 - axis] + placed.at[1 - axis],
            sides[axis],
            given[axis],
            (placed.at[1 - axis], placed.at[1 - axis] + placed.size[1 - axis]),
        )
        for axis in (0, 1)
    )
    return rows, columns


def _line(middles: np.ndarray, side: int, count: int, seen: tuple[int, int] | None = None) -> Line:
    """Pixels whose middles lie at these places of a side, on `count` logits along it."""
    first, last = seen or (0, side)
    at = np.clip(middles * (count / side) - 0.5, 0, count - 1)
    low = at.astype(np.intp)
    inside = (middles >= first) & (middles <= last)
    return Line(low, np.minimum(low + 1, count - 1), (at - low).astype(np.float32), inside)


def _resized(logits: np.ndarray, rows: Line, columns: Line) -> Iterator[tuple[int, int, np.ndarray]]:
    """First row, the one after the last, and the values [channels, rows, width] of parts of the resized logits."""
    channels, width = len(logits), len(columns.low)
    step = max(1, BLOCK // max(1, channels * width))
    for start in range(0, len(rows.low), step):
        end = min(start + step, len(rows.low))
        part = rows.part(start, end)
        lines = _between(logits[:, part.low], logits[:, part.high], part.share[:, None])
        yield start, end, _between(lines[:, :, columns.low], lines[:, :, columns.high], columns.share)


def _between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The values low + (high - low) * share, in the memory of `high`."""
    high -= low
    high *= share
    high += low
    return high
