"""Pages about pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.server.cookbook.conftest import Answer
from tests.server.kitchen import Kitchen, Page

SHIM = Path(__file__).parent / "torchvision"
"""PyPI's torchvision needs a PyTorch for GPUs; its networks do without the operators that the other kind lacks."""


def picture(number: int) -> bytes:
    """A JPEG of colored noise, another for each number, of another size for each."""
    generator = np.random.default_rng(number)
    small = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((240 + 16 * number, 300), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


def test_an_image_classifier_of_torchvision(place: Kitchen, answers: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and scores are those of torchvision's own transforms and network, for 16 callers at the same time."""
    monkeypatch.syspath_prepend(SHIM)
    monkeypatch.setenv("PYTHONPATH", str(SHIM), prepend=":")
    import sitecustomize  # noqa: F401 - declares the operators here, too
    from torchvision import transforms
    from torchvision.models import resnet18

    torch.manual_seed(3)
    network = resnet18()
    torch.save(network.state_dict(), place.folder / "resnet18.pth")
    labels = [f"label {number}" for number in range(1000)]
    place.ahead = {
        "models/classifier/labels.txt": "\n".join(labels).encode(),
        "models/classifier/photo.jpg": picture(0),
    }
    place.cook(Page.read("image-classifier"))
    prepared = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    pictures = [picture(number) for number in range(32)]
    with torch.inference_mode():
        pixels = torch.stack([prepared(Image.open(io.BytesIO(data))) for data in pictures])
        reference = network.eval()(pixels).softmax(1)
    for scores, reply in zip(reference, answers(place, "classifier", [{"image": [x]} for x in pictures]), strict=True):
        chosen = [labels.index(label.decode()) for label in reply["label"].ravel()]
        # Labels of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].ravel(), scores[chosen], rtol=2e-2)
        np.testing.assert_allclose(reply["score"].ravel(), scores.topk(3).values, rtol=2e-2)
