"""Pages about pictures."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.server.cookbook.conftest import Answer
from tests.server.kitchen import Kitchen, Page

ANSWERS = Path(__file__).with_name("torchvision_answers.py")


def picture(number: int) -> bytes:
    """A JPEG of colored noise, another for each number, of another size for each."""
    generator = np.random.default_rng(number)
    small = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((240 + 16 * number, 300), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


@pytest.fixture
def torchvision(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torchvision of this PyTorch, for child processes alone."""
    folder = tmp_path_factory.mktemp("torchvision")
    major, minor = torch.__version__.split(".")[:2]
    assert major == "2"
    version = f"torchvision==0.{int(minor) + 15}.*"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), version], check=True
    )
    shutil.copy(ANSWERS, folder / "sitecustomize.py")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def torchvision_says(weights: Path, answers: Path, pictures: list[Path]) -> None:
    """Write the weights, or the probabilities of the pictures' classes where the weights are there."""
    subprocess.run([sys.executable, ANSWERS, weights, answers, *pictures], check=True)


@pytest.mark.usefixtures("torchvision")
def test_an_image_classifier_of_torchvision(place: Kitchen, answers: Answer) -> None:
    """Scores are those of torchvision's own transforms and network, for 16 callers at the same time."""
    folder = place.folder
    files = [folder / f"{number:02}.jpg" for number in range(32)]
    for number, file in enumerate(files):
        file.write_bytes(picture(number))
    weights = folder / "resnet18.pth"
    torchvision_says(weights, folder / "reference", [])
    labels = [f"label {number}" for number in range(1000)]
    place.ahead = {
        "models/classifier/labels.txt": "\n".join(labels).encode(),
        "models/classifier/photo.jpg": files[0].read_bytes(),
    }
    place.cook(Page.read("image-classifier"))
    torchvision_says(weights, folder / "reference", files)
    reference = torch.load(folder / "reference", weights_only=True)
    items = [{"image": [file.read_bytes()]} for file in files]
    for scores, reply in zip(reference, answers(place, "classifier", items), strict=True):
        chosen = [labels.index(label.decode()) for label in reply["label"].ravel()]
        # Labels of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].ravel(), scores[chosen], rtol=2e-2)
        np.testing.assert_allclose(reply["score"].ravel(), scores.topk(3).values, rtol=2e-2)
