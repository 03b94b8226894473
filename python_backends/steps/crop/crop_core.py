"""Cut boxes out of an image: upright ones, rotated ones, quadrilaterals, whose perspective is undone, and surroundings
of points that get given places, such as the eyes of a face.

Coordinates are those of `detect`: a pixel is a square with sides of 1, so the whole image is 0, 0, width, height.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from decode_image_core import (
    DTYPES,
    RESAMPLE,
    PixelSettings,
    check_resize,
    decode_upright,
    pixels_of,
    placed,
)
from decode_image_geometry import Placement, place, want
from PIL import Image

SHAPES = {"box": (4,), "quad": (4, 2), "rotated": (5,), "points": (-1, 2)}
THINNEST = 0.01  # pixels; Pillow takes no thinner box
FARTHEST = 10  # crops from a place to its edge; larger numbers are most likely pixels
NEAREST = 1e-6  # of a crop: nearer places give no direction


@dataclass(frozen=True)
class Settings(PixelSettings):
    """The step's parameters; step.yaml explains each."""

    form: str = "box"
    places: tuple[float, ...] = ()
    k: int = 100
    count: bool = False
    rotate_tall: float = 0.0
    max_crop_pixels: int = 1 << 28

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        super().__post_init__()
        want(self.form in SHAPES, "form", self.form, f"one of {', '.join(SHAPES)}")
        want(self.k >= 1, "k", self.k, "at least 1")
        want(self.max_crop_pixels >= 1, "max_crop_pixels", self.max_crop_pixels, "at least 1")
        want(0 <= self.rotate_tall < math.inf, "rotate_tall", self.rotate_tall, "at least 0")
        if self.form != "points":
            want(not self.places, "places", list(self.places), f"none with form {self.form}")
            return
        shares = np.array(self.places)
        want(len(shares) >= 4 and len(shares) % 2 == 0, "places", list(self.places), "x and y of at least two points")
        near = np.isfinite(shares) & (abs(shares) <= FARTHEST)
        want(bool(near.all()), "places", list(self.places), f"finite numbers, shares of the crop up to {FARTHEST}")
        apart = np.ptp(shares.reshape(-1, 2), axis=0).max()
        want(bool(apart >= NEAREST), "places", list(self.places), "points of which some differ")

    @property
    def points(self) -> np.ndarray:
        """The places of the points in a crop, in its pixels: float64 [points, 2]."""
        return np.array(self.places).reshape(-1, 2) * (self.width, self.height)


def check_boxes(boxes: np.ndarray, settings: Settings) -> None:
    """Refuse boxes [batch, n, ...] of another shape, too many, or not finite.

    Raises:
        ValueError: names the input and the item.
    """
    name = settings.form
    fits = boxes.shape[2:] == SHAPES[name]
    wanted = str([-1, *SHAPES[name]])
    if name == "points":
        least = len(settings.places) // 2
        fits = boxes.ndim == 4 and boxes.shape[2] >= least and boxes.shape[3] == 2
        wanted += f" with at least {least} points, as parameter places has them"
    if not fits:
        raise ValueError(f"input '{name}': found shape {list(boxes.shape[1:])}, wanted {wanted}")
    if boxes.shape[1] > settings.k:
        raise ValueError(f"input '{name}': found {boxes.shape[1]} for an image; at most {settings.k} are taken")
    finite = np.isfinite(boxes).all(axis=tuple(range(1, boxes.ndim)))
    if not finite.all():
        raise ValueError(f"input '{name}', item {int(np.argmin(finite))}: a number is not finite")


def crops(data: bytes, boxes: np.ndarray, count: int, settings: Settings) -> np.ndarray:
    """The pixels of each box of an image.

    Args:
        data: the encoded image.
        boxes: float32 [n, ...] that passed `check_boxes`.
        count: the number of boxes that count; without any the image is not decoded.
        settings: the step's.

    Returns:
        [n, channels, height, width], or [n, height, width, channels] with `layout` NHWC. Pixels outside the image,
        boxes without an area and those after the first `count` have `pad_value`.

    Raises:
        ValueError: an image that decode_image refuses, boxes of too many pixels, a quadrilateral that is not convex, or
            a box too thin to resize.
    """
    boxes = boxes.astype(np.float64)
    image = decode_upright(data, settings) if count > 0 and len(boxes) else None
    if image is not None:
        _check_pixels(image, boxes[:count], settings)
    values = np.empty((len(boxes), *settings.shape), dtype=DTYPES[settings.dtype])
    empty = np.full((settings.height, settings.width, settings.channels), settings.pad_value, dtype=np.uint8)
    values[:] = pixels_of(empty, settings)
    for index, box in enumerate(boxes[:count] if image is not None else ()):
        try:
            crop = _crop(image, box, settings)
        except ValueError as error:
            raise ValueError(f"{settings.form} {index}: {error}") from error
        if crop is not None:
            values[index] = pixels_of(crop, settings)
    return values


def _check_pixels(image: Image.Image, boxes: np.ndarray, settings: Settings) -> None:
    """Refuse boxes that together have more pixels than are read: each may be as large as the image."""
    if settings.form == "box":
        boxes = np.clip(boxes, 0, [*image.size, *image.size])
        sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    else:
        sides = np.array([_sides(_quad(box, settings)) for box in boxes])
    count = int(np.minimum(sides.prod(axis=1), _most(image, settings)).sum())
    if count > settings.max_crop_pixels:
        raise ValueError(
            f"its {len(boxes)} crops have {count} pixels of the image; at most {settings.max_crop_pixels} are taken"
            " (parameter max_crop_pixels)"
        )


def _most(image: Image.Image, settings: Settings) -> int:
    """Most pixels of a warped image: a larger quadrilateral shows little of the image, or nothing, for each of them."""
    return max(image.width * image.height, settings.width * settings.height)


def _sides(corners: np.ndarray) -> tuple[float, float]:
    """Width and height of a quadrilateral: the longer of its opposite sides."""
    lengths = np.hypot(*(np.roll(corners, -1, axis=0) - corners).T)
    return float(max(lengths[0], lengths[2])), float(max(lengths[1], lengths[3]))


def _crop(image: Image.Image, box: np.ndarray, settings: Settings) -> np.ndarray | None:
    """The crop of a box, uint8 [height, width, channels]; None for a box without an area in the image."""
    if settings.form == "box":
        box = np.clip(box, 0, [*image.size, *image.size])
        width, height = box[2:] - box[:2]
        if min(width, height) < THINNEST:
            return None
        if not _is_tall(width, height, settings):
            return _upright(image, box, settings)
        left, top, right, bottom = box
        return _warped(image, np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), settings)
    return _warped(image, _quad(box, settings), settings)


def _quad(box: np.ndarray, settings: Settings) -> np.ndarray:
    """The corners of a box of any form but the upright one, from the upper left on."""
    if settings.form == "rotated":
        return corners_of(box)
    return box if settings.form == "quad" else corners_around(box, settings)


def _is_tall(width: float, height: float, settings: Settings) -> bool:
    return settings.rotate_tall > 0 and height >= settings.rotate_tall * width


def _upright(image: Image.Image, box: np.ndarray, settings: Settings) -> np.ndarray:
    """A box within the image, resized as decode_image resizes an image of its size."""
    left, top, right, bottom = box.tolist()
    outer = (math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom))
    image = image.crop(outer)  # pixels around the box would otherwise show at its edges
    left, top, right, bottom = left - outer[0], top - outer[1], right - outer[0], bottom - outer[1]
    size = (max(1, round(right - left)), max(1, round(bottom - top)))
    placement = place(size, settings)
    across, down = (right - left) / size[0], (bottom - top) / size[1]
    x0, y0, x1, y1 = placement.box
    part = (
        left + x0 * across,
        top + y0 * down,
        min(left + x1 * across, image.width),
        min(top + y1 * down, image.height),
    )
    placement = Placement(part, placement.size, placement.at)
    check_resize(size, placement, settings)
    return placed(image, placement, settings)


def _warped(image: Image.Image, corners: np.ndarray, settings: Settings) -> np.ndarray | None:
    """A quadrilateral in its own size, then resized."""
    width, height = _sides(corners)
    if min(width, height) < THINNEST or not check_convex(corners):
        return None
    if _is_tall(width, height, settings):
        corners, width, height = np.roll(corners, -1, axis=0), height, width
    most = _most(image, settings)
    share = min(1.0, math.sqrt(most / width / height))
    size = (min(most, max(1, round(width * share))), min(most, max(1, round(height * share))))
    placement = place(size, settings)
    check_resize(size, placement, settings)
    resample = RESAMPLE["bilinear" if settings.resample in ("box", "linear") else settings.resample]
    fill = settings.pad_value if image.mode == "L" else (settings.pad_value,) * 3
    coefficients = perspective(size, corners)
    warped = image.transform(size, Image.Transform.PERSPECTIVE, coefficients, resample, fillcolor=fill)
    return placed(warped, placement, settings)


def check_convex(corners: np.ndarray) -> bool:
    """Whether a quadrilateral has an area; ValueError if its sides cross, turn back or make a triangle."""
    sides = np.roll(corners, -1, axis=0) - corners
    after = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * after[:, 1] - sides[:, 1] * after[:, 0]
    turns = turns[np.abs(turns) >= THINNEST**2]
    if (turns > 0).any() and (turns < 0).any():
        raise ValueError("its corners do not go round it in one direction, from the upper left on")
    if 0 < len(turns) < len(corners):
        raise ValueError("three of its corners lie on a line")
    return len(turns) > 0


def corners_of(rotated: np.ndarray) -> np.ndarray:
    """The corners [4, 2] of center, width, height and angle, from the upper left on."""
    x, y, width, height, angle = rotated
    across = np.array([math.cos(angle), math.sin(angle)]) * width / 2
    down = np.array([-math.sin(angle), math.cos(angle)]) * height / 2
    center = np.array([x, y])
    return np.stack([center - across - down, center + across - down, center + across + down, center - across + down])


def corners_around(points: np.ndarray, settings: Settings) -> np.ndarray:
    """The corners [4, 2] of the crop in which points [n, 2] of the image come to lie nearest to their places.

    The image is moved, turned and scaled evenly (least squares), neither distorted nor mirrored.
    """
    places = settings.points @ (1, 1j)  # complex numbers: a product turns and scales
    points = points[: len(places)] @ (1, 1j)
    middle, center = places.mean(), points.mean()
    away = places - middle
    factor = ((points - center) * away.conj()).sum() / (abs(away) ** 2).sum()
    width, height = settings.width, settings.height
    corners = (np.array([0, width, width + height * 1j, height * 1j]) - middle) * factor + center
    return np.stack([corners.real, corners.imag], axis=1)


def perspective(size: tuple[int, int], corners: np.ndarray) -> list[float]:
    """Pillow's coefficients, which lead from an image of this size to the quadrilateral with these corners."""
    width, height = size
    return projection(np.array([(0, 0), (width, 0), (width, height), (0, height)]), corners)


def projection(start: np.ndarray, corners: np.ndarray) -> list[float]:
    """Pillow's coefficients, which lead from four points [4, 2] of the new image to those of the old one."""
    rows, values = [], []
    for (x, y), (u, v) in zip(start, corners, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    try:
        solved: list[float] = np.linalg.solve(np.array(rows), np.array(values)).tolist()
    except np.linalg.LinAlgError as error:
        raise ValueError("its corners are too far away or too near each other") from error
    return solved
