"""Recipe of the page about texts in pictures: PP-OCR's networks from the package RapidOCR, and its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.families.packages import answers_of, environment, installed
from bench.families.pages import pages
from bench.families.recipes import Answer, Item, Recipe, from_json, items_of

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES", "package"]

SCRIPT = Path(__file__).with_name("ocr_answers.py")
PACKAGES = ("rapidocr-onnxruntime==1.4.4", "opencv-python-headless<5", "pyclipper", "shapely", "six")
"""RapidOCR and what it needs besides the packages of the build."""
PICTURES = 20


def package() -> Path:
    """The folder with RapidOCR: it brings OpenCV."""
    return installed("rapidocr-1.4.4", PACKAGES)


def reader(place: Kitchen, small: bool) -> list[Item]:
    """The package's networks, and pictures of ten kinds; they are the same for a small page."""
    place.environment = {**place.environment, **environment(package())}
    items = items_of("image", pages(10 if small else PICTURES))
    (place.folder / "page.jpg").write_bytes(items[0]["image"])
    return items


def continued(place: Kitchen, small: bool) -> list[Item]:
    """The same, with the files of the page that the faster one begins with."""
    from bench.families.kitchen import Page

    items = reader(place, small)
    place.cook(Page.read("ocr").before("tritonkit build"))
    return items


def read(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The package's own lines and scores."""
    answers = answers_of(SCRIPT, package(), folder, items)
    return [Answer(scores, texts) for texts, scores in answers]


def lines(reply: Reply) -> Answer:
    """Lines in the order of reading, and their scores."""
    count = reply["count"].item()
    return Answer(reply["score"].ravel()[:count], [text.decode() for text in reply["text"].ravel()[:count]])


def characters(answer: Answer) -> Answer:
    """The characters of an answer without spaces, which PP-OCR gives or not by luck."""
    return Answer((), list("".join("".join(answer.names).split())))


RECIPES = {
    "ocr": Recipe(
        "page",
        "models/page",
        "ocr:Reader",
        reader,
        read,
        lines,
        from_json,
        at_most=0.05,
        counted="page_lines_item_reader",
    )
}
RECIPES["ocr-fast"] = replace(
    RECIPES["ocr"],
    prepare=continued,
    reference=lambda folder, items: [characters(answer) for answer in read(folder, items)],
    served=lambda reply: characters(lines(reply)),
    peer=lambda body: characters(from_json(body)),
    aligned=True,
)
