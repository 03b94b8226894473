"""Lines of text cut out of a picture, as PaddleOCR cuts them: perspective undone, tall ones turned, in one height.

A recognizer takes lines of one width in a run, so PaddleOCR sorts a page's lines by their proportions and fills each
group up to its longest. The network sees how far, so the widths are part of a line's answer: they are decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from crop_core import check_convex, projection
from decode_image_core import PixelSettings, decode_upright, pixels_of
from decode_image_geometry import want
from decode_image_linear import linear
from PIL import Image
from text_crops_warp import warped

LIMITS = ("max_pixels", "max_bytes", "max_decoded_bytes", "max_batch_decoded_bytes")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1000
    height: int = 48
    width: int = 320
    max_width: int = 4096
    group: int = 6
    rotate_tall: float = 1.5
    start_width: int = 192
    color: str = "BGR"
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    background: str = "white"
    max_pixels: int = 64_000_000
    max_bytes: int = 32 * 1024 * 1024
    max_decoded_bytes: int = 192 * 1024 * 1024
    max_batch_decoded_bytes: int = 2048 * 1024 * 1024
    max_crop_pixels: int = 1 << 28

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        for name in ("k", "group", "max_crop_pixels"):
            want(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        want(self.start_width >= 1, "start_width", self.start_width, "at least 1")
        want(self.pixels.width <= self.max_width, "max_width", self.max_width, f"at least {self.width}, the width")
        want(0 <= self.rotate_tall < math.inf, "rotate_tall", self.rotate_tall, "at least 0")

    @cached_property
    def pixels(self) -> PixelSettings:
        """The parameters that decode_image has too."""
        names = ("height", "width", "color", "mean", "std", "background", *LIMITS)
        return PixelSettings(**{name: getattr(self, name) for name in names})


def check_quads(quads: np.ndarray, settings: Settings) -> None:
    """Refuse quadrilaterals [batch, n, 4, 2] that are too many or not finite.

    Raises:
        ValueError: names the input and the item.
    """
    if quads.shape[1] > settings.k:
        raise ValueError(f"input 'quad': found {quads.shape[1]} for a picture; at most {settings.k} are taken")
    finite = np.isfinite(quads).all(axis=(1, 2, 3))
    if not finite.all():
        raise ValueError(f"input 'quad', item {int(np.argmin(finite))}: a number is not finite")


def text_crops(data: bytes, quads: np.ndarray, settings: Settings) -> list[np.ndarray]:
    """The pixels of each quadrilateral in its own size, uint8 [height, width, 3]; a tall one is turned.

    Args:
        data: the encoded picture.
        quads: float32 [n, 4, 2], corners from the upper left on, clockwise, in pixels of the picture.

    Raises:
        ValueError: a picture that decode_image refuses, too many pixels, or a quadrilateral that is not convex.
    """
    if not len(quads):
        return []
    image = decode_upright(data, settings.pixels).convert("RGB")
    sizes = [_size(corners) for corners in quads.astype(np.float64)]
    count = sum(width * height for width, height in sizes)
    if count > settings.max_crop_pixels:
        raise ValueError(
            f"its {len(quads)} lines have {count} pixels of the picture; at most {settings.max_crop_pixels} are taken"
            " (parameter max_crop_pixels)"
        )
    crops = []
    for index, (corners, size) in enumerate(zip(quads.astype(np.float64), sizes, strict=True)):
        try:
            crop = _cut(image, corners, size)
        except ValueError as error:
            raise ValueError(f"quad {index}: {error}") from error
        tall = settings.rotate_tall > 0 and len(crop) >= settings.rotate_tall * crop.shape[1]
        crops.append(np.rot90(crop) if tall else crop)
    return crops


def _size(corners: np.ndarray) -> tuple[int, int]:
    """Width and height of a quadrilateral in whole pixels: the longer of its opposite sides."""
    lengths = np.hypot(*(np.roll(corners, -1, axis=0) - corners).T)
    return max(1, int(max(lengths[0], lengths[2]))), max(1, int(max(lengths[1], lengths[3])))


def _cut(image: Image.Image, corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A quadrilateral in this size: uint8 [height, width, 3]. Its corners are centers of pixels.

    Where it reaches out of the picture, the last pixels are repeated; one outside is black.
    """
    width, height = size
    target = np.array([(0, 0), (width, 0), (width, height), (0, height)], dtype=np.float64)
    left, top = corners[0]
    inside = corners.min() >= 0 and (corners[2] <= image.size).all()
    if inside and (corners - corners[0] == target).all() and left == int(left) and top == int(top):
        return np.asarray(image.crop((int(left), int(top), int(left) + width, int(top) + height)))
    if not check_convex(corners):
        return np.zeros((height, width, 3), np.uint8)
    low = np.floor(corners.min(axis=0)).astype(int) - 2
    high = np.ceil(corners.max(axis=0)).astype(int) + 3
    low, high = (np.clip(ends, 0, image.size) for ends in (low, np.maximum(high, low + 1)))
    if (high <= low).any():  # outside of the picture
        return np.zeros((height, width, 3), np.uint8)
    part = np.asarray(image.crop((*low.tolist(), *high.tolist())))
    return warped(part, size, projection(target, corners - low))


def in_height(crop: np.ndarray, height: int, most: int) -> np.ndarray:
    """A crop in this height, and in the width of its proportions, at most `most`: uint8 [height, width, 3]."""
    width = min(most, math.ceil(height * (crop.shape[1] / crop.shape[0])))
    return linear(crop, (width, height), (0, 0, crop.shape[1], crop.shape[0]))


def widths(crops: list[np.ndarray], settings: Settings) -> np.ndarray:
    """The pixels of each line, and how many the recognizer gets: int32 [n, 2]."""
    ratios = np.array([crop.shape[1] / crop.shape[0] for crop in crops])
    order = np.argsort(ratios, kind="stable")
    found = np.zeros((len(crops), 2), np.int32)
    for start in range(0, len(crops), settings.group):
        members = order[start : start + settings.group]
        longest = max(settings.width / settings.height, ratios[members].max())
        full = min(int(settings.height * longest), settings.max_width)
        found[members, 0] = np.minimum(np.ceil(settings.height * ratios[members]), full)
        found[members, 1] = full
    return found


def lines(crops: list[np.ndarray], count: int, settings: Settings) -> dict[str, np.ndarray]:
    """The outputs for a picture.

    Args:
        crops: its lines in their own sizes.
        count: how many there are to be; zeros follow the picture's own.

    Returns:
        line: uint8 [count, height, width of the longest, 3], zeros follow each; widths: int32 [count, 2], of those
        that follow the last 1 and `width`; start: float32 [count, 3, height, start_width].
    """
    sizes = np.tile(np.int32([1, settings.width]), (count, 1))
    sizes[: len(crops)] = widths(crops, settings)
    values = np.zeros((count, settings.height, sizes[:, 0].max(initial=1), 3), np.uint8)
    start = np.zeros((count, 3, settings.height, settings.start_width), np.float32)
    for index, (crop, (width, _)) in enumerate(zip(crops, sizes, strict=False)):
        line = in_height(crop, settings.height, width)
        values[index, :, :width] = line[:, :, ::-1] if settings.color == "BGR" else line
        if width > settings.start_width:
            line = in_height(crop, settings.height, settings.start_width)
        # Zeros fill up what is scaled: a pixel of them is gray to the network.
        start[index, :, :, : line.shape[1]] = pixels_of(line, settings.pixels)
    return {"line": values, "widths": sizes, "start": start}
