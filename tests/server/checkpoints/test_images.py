"""Image models of `tritonkit new --hf`: their answers are those of transformers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.families.checkpoints import IMAGE_FAMILIES, TEXTS, image_checkpoint, pictures, tower_checkpoint
from tests.server.checkpoints.serving import served

LABELS = {0: "cat", 1: "dog", 2: "a bird, flying"}
CLOSE = {"rtol": 0.02, "atol": 0.02}
"""A resized pixel may be one step of 255 away, because decode_image cuts before it resizes."""


def opened(encoded: bytes) -> Any:
    """The picture as Pillow has it."""
    from PIL import Image

    return Image.open(io.BytesIO(encoded)).convert("RGB")


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_classes_and_vectors_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    """A classifier gives the probabilities of the pipeline; a network without a head gives what its pooler gives."""
    from transformers import AutoImageProcessor, AutoModel, pipeline

    labels = {"id2label": LABELS, "label2id": {label: number for number, label in LABELS.items()}}
    classes = image_checkpoint(tmp_path / "classes", family, "ForImageClassification", **labels)
    vectors = image_checkpoint(tmp_path / "vectors", family, "Model")
    with served(tmp_path, {"classes": classes, "vectors": vectors}) as client:
        replies = [client.model("classes").predict(image=encoded) for encoded in pictures()]
        embeddings = [client.model("vectors").predict(image=encoded)["embedding"][0] for encoded in pictures()]
    reference = pipeline("image-classification", model=str(classes))
    for encoded, reply in zip(pictures(), replies, strict=True):
        expected = {entry["label"]: entry["score"] for entry in reference(opened(encoded))}
        names = [label.decode() for label in reply["label"][0]]
        np.testing.assert_allclose(reply["score"][0], [expected[name] for name in names], **CLOSE)
    processor, network = AutoImageProcessor.from_pretrained(vectors), AutoModel.from_pretrained(vectors).eval()
    for encoded, vector in zip(pictures(), embeddings, strict=True):
        output = network(**processor(opened(encoded), return_tensors="pt"))
        expected_vector = output.pooler_output.detach().numpy().ravel()
        cosine = vector @ expected_vector / np.linalg.norm(vector) / np.linalg.norm(expected_vector)
        assert cosine > 0.999, np.abs(vector - expected_vector).max()


def test_two_towers_are_two_models_with_one_space(tmp_path: Path) -> None:
    """CLIP's texts and images have the vectors that transformers compares."""
    from tokenizers import Tokenizer
    from transformers import AutoImageProcessor, CLIPModel

    folder = tower_checkpoint(tmp_path / "towers")
    with served(tmp_path, {"clip": folder}) as client:
        texts = [client.model("clip_text").predict(text=text)["embedding"][0] for text in TEXTS]
        images = [client.model("clip_image").predict(image=encoded)["embedding"][0] for encoded in pictures()]
    network, processor = CLIPModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(32)
    pixels = processor([opened(encoded) for encoded in pictures()], return_tensors="pt")["pixel_values"]
    for text, vector in zip(TEXTS, texts, strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            output = network(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels)
        np.testing.assert_allclose(vector, output.text_embeds[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.array(images), output.image_embeds, **CLOSE)
