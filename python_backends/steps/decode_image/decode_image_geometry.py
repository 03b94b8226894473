"""Place of an image in the pixels that a network takes, for decode_image, and the way back, for detect and mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

RESIZES = ("stretch", "crop", "letterbox", "shortest")
OWN_SIZES = ("at_least", "at_most")
"""Ways to resize after which each image has a size of its own."""
LONGEST = 8
"""With `at_least` the longer side is at most that many times `resize_to`."""

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom


class Frame(Protocol):
    """The parameters that decide on the place."""

    @property
    def height(self) -> int:
        """Height of the network's image."""

    @property
    def width(self) -> int:
        """Width of the network's image."""

    @property
    def resize(self) -> str:
        """One of `RESIZES`, or for decode_image of `OWN_SIZES`."""

    @property
    def resize_to(self) -> int:
        """Length of the shorter side, for crop, shortest and at_least, or of the longer one, for at_most."""


@dataclass(frozen=True)
class Placement:
    """The part `box` of the source, resized to `size`, lies at `at` (left, top) in the network's image."""

    box: Box
    size: Size
    at: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """Source pixels per pixel of the network's image, across and down."""
        left, top, right, bottom = self.box
        return (right - left) / self.size[0], (bottom - top) / self.size[1]


def want(holds: bool, name: str, value: object, expected: str) -> None:
    """Raise ValueError for a parameter that does not hold."""
    if not holds:
        raise ValueError(f"parameter {name}: found {value}, wanted {expected}")


def check_frame(frame: Frame, resizes: tuple[str, ...] = RESIZES) -> None:
    """Raise ValueError for values that fit no image."""
    for name in ("height", "width", "resize_to"):
        want(getattr(frame, name) >= 1, name, getattr(frame, name), "at least 1")
    want(frame.resize in resizes, "resize", frame.resize, f"one of {', '.join(resizes)}")
    if frame.resize == "crop":
        side = max(frame.height, frame.width)
        want(frame.resize_to >= side, "resize_to", frame.resize_to, f"at least {side}")
    if frame.resize == "shortest":
        side = min(frame.height, frame.width)
        want(frame.resize_to <= side, "resize_to", frame.resize_to, f"at most {side}, the shorter side of the output")


def place(size: Size, frame: Frame) -> Placement:
    """The place of an upright image of this size.

    `letterbox` is that of YOLO: scaled until it fits, centered, an odd pixel of padding right or at the bottom.
    `shortest` has torchvision's size, and padding right and at the bottom.
    """
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    target = (frame.width, frame.height)
    if frame.resize == "stretch":
        return Placement(whole, target, (0, 0))
    if frame.resize == "crop":
        return Placement(_center(size, target, frame.resize_to), target, (0, 0))
    if frame.resize in OWN_SIZES:
        return Placement(whole, _own_size(size, target, frame), (0, 0))
    if frame.resize == "shortest":
        return Placement(whole, _shortest(size, target, frame.resize_to), (0, 0))
    fitted = _fitted(size, target)
    left, top = (round((room - side) / 2 - 0.1) for room, side in zip(target, fitted, strict=True))
    return Placement(whole, fitted, (left, top))


def _fitted(size: Size, target: Size) -> Size:
    """The largest size of the same proportions that fits; at least one pixel."""
    ratio = min(room / side for room, side in zip(target, size, strict=True))
    width, height = (max(1, round(side * ratio)) for side in size)
    return width, height


def _shortest(size: Size, target: Size, shorter: int) -> Size:
    """The size with this shorter side; a smaller one where that is larger than the network's image."""
    width, height = (shorter * side // min(size) for side in size)
    return (width, height) if width <= target[0] and height <= target[1] else _fitted(size, target)


def _own_size(size: Size, multiples: Size, frame: Frame) -> Size:
    """The size that an image of this one gets: multiples of the frame's width and height, at least one of each."""
    most = frame.resize_to / max(size)
    ratio = min(1.0, most)
    if frame.resize == "at_least":
        ratio = min(max(1.0, frame.resize_to / min(size)), LONGEST * most)
    width, height = (
        max(1, round(int(side * ratio) / multiple)) * multiple for side, multiple in zip(size, multiples, strict=True)
    )
    return width, height


def _center(size: Size, target: Size, shorter: int) -> Box:
    """The part of the source that torchvision's Resize then CenterCrop would keep.

    Resampling only this part gives the same pixels except for rounding, and a 1 x 1,000,000 image does not first become
    256 x 256,000,000.
    """
    scaled = [int(shorter * side / min(size)) for side in size]
    starts = [round((have - room) / 2.0) for have, room in zip(scaled, target, strict=True)]
    ratios = [side / have for side, have in zip(size, scaled, strict=True)]
    left, top = (start * ratio for start, ratio in zip(starts, ratios, strict=True))
    right, bottom = (
        min((start + room) * ratio, side) for start, room, ratio, side in zip(starts, target, ratios, size, strict=True)
    )
    return left, top, right, bottom
