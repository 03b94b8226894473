"""The page about texts in pictures, with the networks and the answers of a package."""

from __future__ import annotations

import numpy as np

from bench.families.kitchen import Kitchen, Page
from bench.families.measure import EQUAL
from bench.families.recipes import compared, recipes
from tests.server.cookbook.conftest import Answer, batches_of_one


def test_text_in_pictures(place: Kitchen, answers: Answer) -> None:
    """Texts of ten pictures are RapidOCR's own, line by line, for 16 callers at the same time."""
    recipe = recipes()["ocr"]
    items = recipe.prepare(place, True)
    place.cook(Page.read("ocr"))
    expected = recipe.reference(place.folder, items)
    replies = answers(place, "page", batches_of_one(items))
    for reference, reply in zip(expected, replies, strict=True):
        found = recipe.served(reply)
        assert list(found.names) == list(reference.names)
        np.testing.assert_allclose(found.numbers, reference.numbers, atol=recipe.at_most)
        assert reply["page"].item().decode() == "\n".join(reference.names)
        assert reply["quad"].reshape(-1, 4, 2).shape[0] == max(1, len(reference.names))
    assert place.output == "\n".join(expected[0].names) + "\n"


def test_a_faster_reader_reads_nearly_the_same(place: Kitchen, answers: Answer) -> None:
    """The gate lets the reader pass, and nearly all characters of ten pictures are RapidOCR's own."""
    recipe = recipes()["ocr-fast"]
    items = recipe.prepare(place, True)
    place.cook(Page.read("ocr-fast"))
    replies = [recipe.served(reply) for reply in answers(place, "page", batches_of_one(items))]
    assert compared(replies, recipe.reference(place.folder, items), aligned=True)[0] >= EQUAL
    assert place.output.startswith("Letter 1000\n")
