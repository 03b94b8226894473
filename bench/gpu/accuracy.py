"""Answers of the served variants of ResNet-50 against FP32 on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.gpu.requests import items, padded
from tritonkit.client import Client

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IMAGES", "answers", "compared"]

IMAGES = 64
"""Images that are compared, in one batch."""


def answers(address: str, model: str, pixels: int, images: int = IMAGES) -> NDArray[Any]:
    """The model's answers to the images that the engine answers too."""
    with Client(address) as client:
        reply = client.model(model).predict(inputs=padded(items("resnet50", images, pixels)))
    return np.array(reply["logits"])


def compared(served: NDArray[Any], reference: NDArray[Any]) -> dict[str, float]:
    """The largest difference as a share of the largest logit, and the images whose first class is the same."""
    difference = np.abs(served - reference).max() / np.abs(reference).max()
    same = served.argmax(axis=1) == reference.argmax(axis=1)
    return {"difference": float(difference), "same": int(same.sum()), "images": len(reference)}
