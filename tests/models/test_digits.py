"""The data of digits: what variants train and calibrate on, and how they are scored."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def test_calibration_and_training_leave_the_held_out_images_alone(data: ModuleType) -> None:
    """No held-out image is among those to train or to calibrate on, pixel for pixel."""
    held_out = {image.tobytes() for b in data.held_out_batches() for image in b["pixels"]}
    training = data.training_batches()
    calibration = data.calibration_batches()
    for batch in (*calibration, *(batch for batch, _ in training)):
        assert batch["pixels"].dtype == np.float32
        assert batch["pixels"].shape[1:] == (1, 8, 8)
        assert not held_out & {image.tobytes() for image in batch["pixels"]}
    assert sum(len(batch["pixels"]) for batch in calibration) == 256
    assert sum(len(labels) for _, labels in training) == 1437


def test_training_labels_belong_to_their_images(data: ModuleType) -> None:
    """Each image's nearest mean of a class, over the training set, is mostly its label's."""
    pairs = data.training_batches()
    pixels = np.concatenate([batch["pixels"] for batch, _ in pairs]).reshape(-1, 64)
    labels = np.concatenate([labels for _, labels in pairs])
    means = np.stack([pixels[labels == digit].mean(axis=0) for digit in range(10)])
    nearest = np.linalg.norm(pixels[:, None] - means, axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.85


def test_accuracy_has_a_score_for_each_image(data: ModuleType) -> None:
    """1.0 where the best class is the label; fewer outputs are scored against the first labels."""
    labels = data.split()[3]
    logits = np.eye(10, dtype=np.float32)[labels]
    logits[3] = -logits[3]
    outputs = [{"logits": logits[:300]}, {"logits": logits[300:]}]
    scores = data.accuracy(outputs, outputs)
    assert scores.shape == (len(labels),)
    assert np.flatnonzero(scores == 0).tolist() == [3]
    assert set(scores.tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(data.accuracy(outputs[:1], outputs[:1]), scores[:300])
