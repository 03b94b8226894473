"""Made-up pictures to measure the network on, and the share on which two forms of it agree."""

import numpy as np
from images import pictures

Array = np.ndarray
Batch = dict[str, Array]

BATCH = 8
HELD_OUT = (200, 3)  # count and seed; calibrate.py has seed 1
CALIBRATION = (64, 2)
TRAINING = (512, 4)
TRAINING_BATCH = 16  # pictures from which batch normalization takes its statistics


def held_out_batches() -> list[Batch]:
    """200 pictures in batches of 8: pixels uint8 [8, 3, 224, 224]."""
    return _batches(*HELD_OUT)


def calibration_batches() -> list[Batch]:
    """64 other pictures, from which the ranges of INT8 are found."""
    return _batches(*CALIBRATION)


def training_batches() -> list[tuple[Batch, None]]:
    """512 more pictures in batches of 16, without labels: a student learns the network's answers."""
    return [(batch, None) for batch in _batches(*TRAINING, TRAINING_BATCH)]


def agreement(outputs: list[Batch], reference: list[Batch]) -> Array:
    """1.0 for each picture whose best class is the reference's, else 0.0: float64 [pictures]."""
    pairs = zip(outputs, reference, strict=True)
    best = [[b["logits"].argmax(axis=1) for b in pair] for pair in pairs]
    return np.concatenate([got == expected for got, expected in best]).astype(float)


def _batches(count: int, seed: int, size: int = BATCH) -> list[Batch]:
    pixels = pictures(count, seed)
    return [{"pixels": pixels[start : start + size]} for start in range(0, count, size)]
