"""A small convolutional network for 8 x 8 digits: about 29,000 parameters."""

from torch import nn


def build() -> nn.Module:
    """pixels: float32 [batch, 1, 8, 8], 0..1 -> logits: float32 [batch, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )
