"""Pictures with faces, put together from photographs that scikit-image ships: an astronaut, and people in the news."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

__all__ = ["PORTRAITS", "portraits"]

FACES = 100
"""The first pictures of `lfw_subset.npy` are faces, the others are not."""


class Album:
    """The photographs, from the folder of scikit-image's data."""

    def __init__(self, folder: Path) -> None:
        self.astronaut = Image.open(folder / "astronaut.png").convert("RGB")
        self.faces = np.load(folder / "lfw_subset.npy")[:FACES]

    def face(self, number: int, side: int) -> Image.Image:
        """One of the small gray faces."""
        gray = (self.faces[number % FACES] * 255).astype(np.uint8)
        return Image.fromarray(gray).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)


def _whole(album: Album, number: int) -> Image.Image:
    return album.astronaut.crop((0, 0, 512 - 40 * number, 512))


def _group(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (640, 480), "#5a5a5a")
    for place in range(12):
        image.paste(album.face(12 * number + place, 100), (20 + 150 * (place % 4), 20 + 150 * (place // 4)))
    return image


def _corner(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (900, 600), "#d8c8a8")
    image.paste(ImageOps.mirror(album.astronaut).resize((360, 360)), (500 - 60 * number, 200))
    return image


def _nobody(_: Album, number: int) -> Image.Image:
    blots = np.random.default_rng(number).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize((700, 500), Image.Resampling.BICUBIC)


def _portrait(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (480, 640), "#606870")
    image.paste(album.face(number + 1, 180), (150, 200))
    return image


def _row(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (800, 300), "#707060")
    for place in range(5):
        side = 80 + 10 * place
        image.paste(album.face(5 * number + place + 6, side), (30 + 155 * place, 150 - side // 2))
    return image


def _slanted(album: Album, number: int) -> Image.Image:
    return album.astronaut.rotate(12 - 30 * number, Image.Resampling.BICUBIC, fillcolor="#404040")


def _pair(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (800, 420), "black")
    image.paste(album.astronaut.resize((400, 400)), (0, 10))
    dark = album.astronaut.point(lambda value: int(value * (0.6 - 0.1 * number)))
    image.paste(ImageOps.mirror(dark).resize((380, 400)), (410, 10))
    return image


def _crowd(album: Album, number: int) -> Image.Image:
    noise = np.random.default_rng(number).integers(80, 200, (10, 14, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((1000, 700), Image.Resampling.BICUBIC)
    for place in range(7):
        image.paste(album.face(7 * number + place, 110 + 10 * place), (30 + 135 * place, 60 + 170 * (place % 3)))
    return image


def _small(album: Album, number: int) -> Image.Image:
    image = Image.new("RGB", (160, 120), "#809080")
    image.paste(album.face(80 + number, 64), (48, 28))
    return image


PORTRAITS: tuple[Callable[[Album, int], Image.Image], ...] = (
    _whole,
    _group,
    _corner,
    _nobody,
    _portrait,
    _row,
    _slanted,
    _pair,
    _crowd,
    _small,
)
"""The kinds of pictures; a number makes another of the kind."""


def portraits(folder: Path, count: int = len(PORTRAITS)) -> list[bytes]:
    """Encoded pictures, each kind in turn: JPEG files, and every third a PNG.

    Args:
        folder: scikit-image's data.
    """
    album = Album(folder)
    files = []
    for number in range(count):
        file = io.BytesIO()
        image = PORTRAITS[number % len(PORTRAITS)](album, number // len(PORTRAITS))
        image.save(file, "PNG") if number % 3 == 2 else image.save(file, "JPEG", quality=92)
        files.append(file.getvalue())
    return files
