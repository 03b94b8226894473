"""Functions of AWS Lambda answer as Triton does: same models, same steps, another process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.runtime_api import Function, function
from tests.server.shared.test_models import hook
from tritonkit.client import Client
from tritonkit.operate.deploy.serverless import bundle, write_bundle


@pytest.fixture
def client(digits_server: Any) -> Iterator[Client]:
    """A client of the shipped models."""
    with Client(digits_server.grpc) as client:
        yield client


@contextmanager
def started(project: Path, folder: Path, model: str, variant: str | None = None) -> Iterator[Function]:
    """The function of a shipped model."""
    write_bundle(folder, bundle(project, model, variant))
    with function(folder / "function") as running:
        assert running.api.init_error is None
        yield running


def ask(running: Function, name: str, items: list[bytes] | list[str]) -> dict[str, Any]:
    """The outputs for a batch of pictures or texts."""
    coded = [base64.b64encode(i).decode() if isinstance(i, bytes) else i for i in items]
    parameters = {"content_type": "base64"} if isinstance(items[0], bytes) else {}
    tensor = {"name": name, "datatype": "BYTES", "shape": [len(items), 1], "data": coded, "parameters": parameters}
    outcome = running.invoke({"inputs": [tensor]})
    assert not outcome.failed
    assert "error" not in outcome.body, outcome.body
    return {entry["name"]: np.reshape(entry["data"], entry["shape"]) for entry in outcome.body["outputs"]}


def test_digits_are_what_triton_answers(client: Client, project: Path, tmp_path: Path) -> None:
    """Sixty held-out pictures in one batch: the same labels, the same scores."""
    images = [png for png, _ in hook(project, "digits", "data:held_out_images")(60)]
    expected = client.model("digits").predict(image=images)
    with started(project, tmp_path, "digits") as running:
        answer = ask(running, "image", images)
    np.testing.assert_allclose(answer["score"], expected["score"], atol=1e-5)
    np.testing.assert_array_equal(answer["label"][:, 0], expected["label"][:, 0].astype(str))


def test_sentences_are_what_triton_answers(client: Client, project: Path, tmp_path: Path) -> None:
    """Texts of all kinds, empty and cut ones too, one by one and together."""
    texts = hook(project, "sentences", "data:sentences")()[:12]
    model = client.model("sentences")
    with started(project, tmp_path, "sentences") as running:
        for items in (texts[:4], *([text] for text in texts[4:])):
            embedding = ask(running, "text", items)["embedding"]
            np.testing.assert_allclose(embedding, model.predict(text=items)["embedding"], atol=1e-4)


def test_int8_digits_reach_their_accuracy(project: Path, tmp_path: Path) -> None:
    """The bar of `quality.at_least`, on the held-out fifth, through the function."""
    images = hook(project, "digits", "data:held_out_images")(360)
    right = 0
    with started(project, tmp_path, "digits", "int8") as running:
        for start in range(0, 360, 60):
            chosen = images[start : start + 60]
            best = ask(running, "image", [png for png, _ in chosen])["label"][:, 0]
            right += sum(label == found for (_, label), found in zip(chosen, best, strict=True))
    assert right / 360 >= 0.975
