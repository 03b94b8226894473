"""A larger network for 8 x 8 digits, about 650,000 parameters, from which pruned and distilled ones are made."""

from torch import nn
from train import fit

EPOCHS = 16  # 25 took longer and were not better


def build() -> nn.Module:
    """pixels: float32 [batch, 1, 8, 8], 0..1 -> logits: float32 [batch, 10]."""
    return nn.Sequential(
        *_convolution(1, 32),
        *_convolution(32, 64),
        nn.MaxPool2d(2),
        *_convolution(64, 128),
        *_convolution(128, 256),
        nn.MaxPool2d(2),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(256 * 2 * 2, 256),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, 10),
    )


def train(network: nn.Module) -> None:
    """Fit `network` in place: about ten seconds on two cores."""
    fit(network, EPOCHS, max_learning_rate=5e-3)


def _convolution(channels: int, outputs: int) -> list[nn.Module]:
    """3 x 3, [batch, channels, h, w] -> [batch, wanted, h, w]."""
    return [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
