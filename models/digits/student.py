"""A network of about 18,000 parameters for 8 x 8 digits, trained by the teacher: see teacher.py."""

from torch import nn


def build() -> nn.Module:
    """pixels: float32 [batch, 1, 8, 8], 0..1 -> logits: float32 [batch, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1, bias=False),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(48 * 4 * 4, 10),
    )
