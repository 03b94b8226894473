"""ResNet-50 v1.5: 53 convolutions, 25,557,032 parameters.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385); v1.5 has
the stride of a block in its 3 x 3 convolution instead of the first 1 x 1. Parameters are called as
torchvision calls them, so that a state_dict of its `resnet50` fits.
"""

import torch
from torch import nn

BLOCKS = (3, 4, 6, 3)  # of the four stages
WIDTHS = (64, 128, 256, 512)  # of their inner convolutions; a stage gives four times as many
CLASSES = 1000
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's training images, as 0..1, red first
STD = (0.229, 0.224, 0.225)
BRANCH = 0.2  # a new block's share relative to its shortcut: the sum of 16 blocks does not blow up


class Normalize(nn.Module):
    """Convert bytes to the convolutions' input inside the network, so that clients send bytes."""

    def __init__(self) -> None:
        super().__init__()
        # Constants of the code, not weights: a checkpoint does not hold them.
        for name, values in (("mean", MEAN), ("std", STD)):
            constant = 255 * torch.tensor(values).view(3, 1, 1)
            self.register_buffer(name, constant, persistent=False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [batch, 3, height, width] -> float32, `(pixels / 255 - mean) / std`."""
        # Sub and Div, which ONNX Runtime's quantizer leaves in float; it would round Mul and Add.
        return (pixels.to(self.mean.dtype) - self.mean) / self.std


class Bottleneck(nn.Module):
    """1 x 1 down, 3 x 3, 1 x 1 up by four, added to the shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, channels, h, w] -> [batch, 4 width, h / stride, w / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """pixels: uint8 [batch, 3, 224, 224] -> logits: float32 [batch, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.normalize = Normalize()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, WIDTHS[0], BLOCKS[0], stride=1)
        self.layer2 = _stage(256, WIDTHS[1], BLOCKS[1], stride=2)
        self.layer3 = _stage(512, WIDTHS[2], BLOCKS[2], stride=2)
        self.layer4 = _stage(1024, WIDTHS[3], BLOCKS[3], stride=2)
        self.fc = nn.Linear(2048, CLASSES)

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [batch, 3, 224, 224] -> input of the last layer, float32 [batch, 2048]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalize(pixels)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [batch, 3, 224, 224] -> float32 [batch, 1000]."""
        return self.fc(self.features(pixels))


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(1, blocks)))


def build() -> ResNet50:
    """The network with He's random weights, drawn from torch's generator.

    Channels lie last in memory, a form in which torch's convolutions train faster on a CPU.
    """
    network = ResNet50()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Bottleneck):
            nn.init.constant_(module.bn3.weight, BRANCH)
    return network.to(memory_format=torch.channels_last)
