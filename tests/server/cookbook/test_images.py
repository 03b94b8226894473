"""Pages about pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.families.checkpoints import TEXTS
from bench.families.images import RECIPES, detected
from bench.families.kitchen import Kitchen, Page
from bench.families.networks import loaded
from tests.server.cookbook.conftest import Answer, batches_of_one


def test_an_image_classifier_of_torchvision(place: Kitchen, answers: Answer) -> None:
    """Scores are those of torchvision's own transforms and network, for 16 callers at the same time."""
    recipe = RECIPES["image-classifier"]
    items = recipe.prepare(place, True)
    place.cook(Page.read("image-classifier"))
    expected = recipe.reference(place.folder, items)
    for reference, reply in zip(expected, answers(place, "classifier", batches_of_one(items)), strict=True):
        # Labels of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].ravel(), reference.numbers, rtol=2e-2)
        scores = dict(zip(reference.names, reference.numbers, strict=True))
        for label, score in zip(reply["label"].ravel(), reply["score"].ravel(), strict=True):
            np.testing.assert_allclose(score, scores.get(label.decode(), reference.numbers[-1]), rtol=2e-2)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_detection_with_yolo(place: Kitchen, answers: Answer) -> None:
    """Boxes are those of a plain loop over the same network's output, for 16 callers at the same time."""
    items = RECIPES["yolo"].prepare(place, True)
    place.cook(Page.read("yolo"))
    network = loaded(place.folder / "network.pt")
    for item, reply in zip(items, answers(place, "detector", batches_of_one(items)), strict=True):
        expected = detected(network, item["image"])
        count = reply["count"].item()
        assert count == len(expected) > 0
        scores = np.array([score for _, score, _ in expected])
        np.testing.assert_allclose(reply["score"].ravel()[:count], scores, atol=2e-3)
        for label, score, box in expected:
            # Boxes of nearly the same score may change places.
            near = [
                np.abs(reply["box"].reshape(-1, 4)[n] - box).max()
                for n in range(count)
                if reply["label"].ravel()[n].decode() == label and abs(reply["score"].ravel()[n] - score) < 4e-3
            ]
            assert min(near) < 0.5
    assert not reply["score"].ravel()[count:].any()


def test_images_and_texts_in_one_space(place: Kitchen, answers: Answer) -> None:
    """Vectors of both towers, and the program's order, are those of transformers, for 16 callers at the same time."""
    recipe = RECIPES["image-and-text"]
    items = recipe.prepare(place, True)
    place.cook(Page.read("image-and-text"))
    references = np.stack([reference.numbers for reference in recipe.reference(place.folder, items)])
    images = np.concatenate([reply["embedding"] for reply in answers(place, "clip_image", batches_of_one(items))])
    # A resized pixel may be one step of 255 away, because decode_image cuts before it resizes.
    np.testing.assert_allclose(images, references, rtol=0.02, atol=0.02)
    distances = np.abs(images[:, None] - references).max(-1)
    assert distances.argmin(1).tolist() == list(range(len(items))), "an image has another's vector"
    texts = ["a photo of a cat", "a photo of a dog", *TEXTS]
    vectors = text_vectors(place, texts)
    replies = answers(place, "clip_text", [{"text": [text]} for text in texts * 4])
    found = np.concatenate([reply["embedding"] for reply in replies])
    np.testing.assert_allclose(found, vectors * 4, rtol=1e-3, atol=1e-4)
    printed = [line.split(" ", 1) for line in place.output.splitlines()]
    similarities = {text: float(vector @ references[0]) for text, vector in zip(texts, vectors, strict=True)}
    assert {text for _, text in printed} == set(texts[:2])
    assert float(printed[0][0]) >= float(printed[1][0])
    for similarity, text in printed:
        assert abs(float(similarity) - similarities[text]) < 0.02


def text_vectors(place: Kitchen, texts: list[str]) -> list[Any]:
    """The vectors of texts, one after the other, by transformers."""
    import torch
    from tokenizers import Tokenizer
    from transformers import CLIPModel

    network = CLIPModel.from_pretrained(place.folder / "clip").eval()
    tokenizer = Tokenizer.from_file(str(place.folder / "clip" / "tokenizer.json"))
    tokenizer.enable_truncation(32)
    side = network.config.vision_config.image_size
    vectors = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.inference_mode():
            output = network(
                input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=torch.zeros(1, 3, side, side)
            )
        vectors.append(output.text_embeds[0].numpy())
    return vectors
