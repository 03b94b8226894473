"""Pictures of texts, drawn with Pillow's own font: a letter, a receipt, a table, slanted and turned lines, signs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

__all__ = ["PAGES", "pages"]

TEXT = (
    "The committee met on Tuesday to review the budget and agreed to raise spending by four percent. Members wanted"
    " a report on traffic near the harbor before the end of June. A new bridge will cost about 12,500,000 and open in"
    " 2031 if the weather is kind. Questions go to the office on Mill Road, open from 9:30 to 17:00 on weekdays."
    " Nobody expected such a crowd, yet every room was full by noon and the kitchen ran out of bread twice."
)
WORDS = TEXT.split()
ITEMS = ("Coffee", "Green tea", "Bread rolls", "Apple juice", "Butter 250 g", "Tomatoes", "Olive oil", "Paper towels")


def _lines(count: int, words: int, start: int = 0) -> list[str]:
    """Lines of the text, from one of its words on.

    Words are as wide apart as columns: PP-OCR, trained on Chinese, gives small spaces or not by luck.
    """
    places = [start + words * number for number in range(count)]
    return ["       ".join(WORDS[(place + word) % len(WORDS)] for word in range(words)) for place in places]


def _written(
    image: Image.Image, lines: Sequence[str], at: tuple[int, int], size: int, color: str = "black", step: float = 1.6
) -> None:
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((at[0], at[1] + int(number * size * step)), line, color, font)


def _letter(number: int) -> Image.Image:
    image = Image.new("RGB", (900, 1100), "white")
    _written(image, [f"Letter {1000 + number}"], (60, 50), 40)
    _written(image, _lines(8, 4, 7 * number), (60, 140), 30, step=2)
    _written(image, ["Yours sincerely,", "M. Okafor"], (60, 760), 26)
    return image


def _receipt(number: int) -> Image.Image:
    image = Image.new("RGB", (480, 800), "#fbf7ea")
    _written(image, ["CORNER SHOP"], (110, 30), 36)
    prices = [1.25 + 0.85 * ((5 * place + number) % 7) for place in range(len(ITEMS))]
    _written(image, ITEMS, (40, 120), 24)
    _written(image, [f"{price:.2f}" for price in prices], (360, 120), 24)
    _written(image, ["TOTAL"], (40, 480), 34)
    _written(image, [f"{sum(prices):.2f}"], (330, 480), 34)
    _written(image, [f"Receipt no. {70000 + 37 * number}", "Thank you for your visit"], (40, 600), 20)
    return image


def _table(number: int) -> Image.Image:
    image = Image.new("RGB", (1000, 640), "white")
    draw = ImageDraw.Draw(image)
    for row in range(9):
        draw.line((40, 80 + 60 * row, 960, 80 + 60 * row), "#888888", 2)
    for column, title in enumerate(("Region", "Orders", "Returns", "Share")):
        values = [str((137 * (row + 1) * (column + 2) + number) % 9973) for row in range(7)]
        _written(image, [title], (60 + 230 * column, 30), 28)
        _written(image, values if column else _lines(7, 1, number), (60 + 230 * column, 96), 24, step=2.5)
    return image


def _slanted(number: int) -> Image.Image:
    image = Image.new("RGB", (900, 700), "white")
    _written(image, _lines(6, 4, 11 * number), (90, 140), 26, step=2.5)
    angle = (-5, 3, 8)[number % 3]
    return image.rotate(angle, Image.Resampling.BICUBIC, fillcolor="white")


def _sign(number: int) -> Image.Image:
    image = Image.new("RGB", (800, 600), ("#123456", "#7a1020")[number % 2])
    _written(image, ["EXIT 42", "North Harbor"], (120, 90), 84, "white", 1.4)
    _written(image, ["Keep left", f"{number + 3} km"], (120, 400), 44, "yellow")
    return image


def _tall(number: int) -> Image.Image:
    image = Image.new("RGB", (800, 760), "white")
    _written(image, _lines(5, 4, 13 * number), (140, 120), 26, step=2.5)
    spine = Image.new("RGB", (560, 50), "white")
    _written(spine, [f"Volume {number + 2} of the archive"], (5, 5), 32)
    image.paste(spine.rotate(90, expand=True), (40, 100))
    return image


def _turned(number: int) -> Image.Image:
    image = Image.new("RGB", (820, 600), "white")
    _written(image, _lines(4, 4, 3 * number), (60, 60), 26, step=2)
    block = Image.new("RGB", (700, 240), "white")
    _written(block, _lines(4, 4, 40 + number), (10, 10), 26, step=2)
    image.paste(block.rotate(180), (60, 340))
    return image


def _noisy(number: int) -> Image.Image:
    noise = np.random.default_rng(number).integers(150, 256, (12, 16, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((960, 760), Image.Resampling.BICUBIC)
    for place, size in enumerate((22, 26, 32, 48)):
        _written(image, _lines(2, 5 - place, 17 * place + number), (30, 40 + 170 * place), size)
    return image


def _columns(number: int) -> Image.Image:
    image = Image.new("RGB", (1000, 900), "white")
    for column in range(2):
        _written(image, _lines(10, 2, 23 * column + number), (50 + 480 * column, 80), 24)
    return image


def _short(number: int) -> Image.Image:
    image = Image.new("RGB", (640, 480), "white")
    for place in range(12):
        at = (40 + 200 * (place % 3), 40 + 105 * (place // 3))
        _written(image, [WORDS[(9 * place + number) % len(WORDS)]], at, 20 + 2 * place)
    return image


PAGES: tuple[Callable[[int], Image.Image], ...] = (
    _letter,
    _receipt,
    _table,
    _slanted,
    _sign,
    _tall,
    _turned,
    _noisy,
    _columns,
    _short,
)
"""The kinds of pages; a number makes another of the kind."""


def pages(count: int = len(PAGES)) -> list[bytes]:
    """Encoded pictures, each kind in turn: JPEG files, and every third a PNG."""
    files = []
    for number in range(count):
        file = io.BytesIO()
        image = PAGES[number % len(PAGES)](number // len(PAGES))
        image.save(file, "PNG") if number % 3 == 2 else image.save(file, "JPEG", quality=92)
        files.append(file.getvalue())
    return files
