"""The pages that `make test` runs: a checkpoint of texts by one command, and an ONNX file of pictures with YAML."""

from __future__ import annotations

import numpy as np

from bench.families.images import RECIPES as IMAGES
from bench.families.images import segmented
from bench.families.kitchen import Kitchen, Page
from bench.families.networks import loaded
from tests.server.cookbook.conftest import Answer, assert_equal, batches_of_one


def test_a_text_classifier(place: Kitchen, answers: Answer) -> None:
    """Labels and probabilities are those of transformers' pipeline, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("text-classifier"))


def test_segmentation(place: Kitchen, answers: Answer) -> None:
    """Classes of pixels are those of PyTorch's network and interpolation, for 16 callers at the same time."""
    items = IMAGES["segmentation"].prepare(place, True)
    place.cook(Page.read("segmentation"))
    network = loaded(place.folder / "network.pt")
    for item, reply in zip(items, answers(place, "segments", batches_of_one(items)), strict=True):
        scores = segmented(network, item["image"])
        mask = reply["mask"][0]
        assert mask.shape == scores.shape[1:] == tuple(reply["mask_size"][0])
        assert len(np.unique(mask)) > 1
        # Where two classes have nearly the same score, either may win.
        chosen = np.take_along_axis(scores, mask[None].astype(np.int64), 0)[0]
        np.testing.assert_allclose(chosen, scores.max(0), atol=0.05)
        assert (mask == scores.argmax(0)).mean() > 0.98
