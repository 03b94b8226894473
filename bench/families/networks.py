"""Random networks with the outputs of known ones, as ONNX files: small ones, and ones of the size that pages name."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

__all__ = ["LABELS", "SIDE", "detector", "loaded", "segmenter", "to_onnx"]

SIDE = 640
LABELS = ("cat", "dog", "bird")
_BOXES = 60
"""Boxes of a picture whose score is high enough, in a network of the page's own size."""


class Detector(nn.Module):
    """A network with the output of YOLO v8: centers, sizes and class scores of boxes on a grid of 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4 + len(LABELS), 32, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images float32 [batch, 3, 640, 640] in 0..1 to boxes float32 [batch, 7, 400]."""
        return _boxes(self.features(images), 32)


class Pyramid(nn.Module):
    """The same with YOLO's three grids, of 8, 16 and 32 pixels, and about the computation of YOLO v11 n."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 16, 32, 64, 128, 256)
        self.stages = nn.ModuleList(
            nn.Sequential(_block(one, other, 2), _block(other, other, 1)) for one, other in itertools.pairwise(sizes)
        )
        self.heads = nn.ModuleList(nn.Conv2d(size, 4 + len(LABELS), 1) for size in sizes[3:])
        self.register_buffer("shift", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images float32 [batch, 3, 640, 640] in 0..1 to boxes float32 [batch, 7, 8400]."""
        grids = []
        for number, stage in enumerate(self.stages):
            images = stage(images)
            if number > 1:
                features = self.heads[number - 2](images)
                grids.append(_boxes(features, 4 * 2 ** (number - 1), self.shift))
        return torch.cat(grids, 2)


def _block(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.SiLU())


def _boxes(features: torch.Tensor, step: int, shift: float | torch.Tensor = 0.0) -> torch.Tensor:
    """Features float32 [batch, 4 + classes, rows, columns] to boxes float32 [batch, 4 + classes, rows * columns]."""
    found, rows = features.flatten(2), SIDE // step
    cells = torch.arange(rows) * step + step / 2
    centers = torch.stack([cells.repeat(rows), cells.repeat_interleave(rows)])
    centers = centers.expand(features.shape[0], -1, -1) + 8 * found[:, :2].tanh()
    return torch.cat([centers, 64 + 32 * found[:, 2:4].tanh(), (3 * (found[:, 4:] - shift)).sigmoid()], 1)


def detector(small: bool) -> nn.Module:
    """A detector of `LABELS`."""
    torch.manual_seed(5)
    if small:
        return Detector().eval()
    network = Pyramid().eval()
    with torch.inference_mode():
        # A random network gives all boxes nearly the same score: the shift leaves only the best above the threshold.
        scores = network(torch.rand(1, 3, SIDE, SIDE))[:, 4:].amax(1).logit() / 3
    network.shift.fill_(float(scores.quantile(1 - _BOXES / scores.numel())) + 0.36)
    return network


class Segmenter(nn.Module):
    """A network with the output of SegFormer: scores of each class at a fourth of the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 5, 4, 4)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Images float32 [batch, 3, height, width] to logits float32 [batch, 5, height / 4, width / 4]."""
        return self.features(pixel_values)


class Segformer(nn.Module):
    """SegFormer b0 with 150 classes, as transformers has it."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import SegformerConfig, SegformerForSemanticSegmentation

        self.network = SegformerForSemanticSegmentation(SegformerConfig(num_labels=150))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """The same as `Segmenter`, with 150 classes."""
        return self.network(pixel_values).logits


def segmenter(small: bool) -> nn.Module:
    """A network that tells classes of pixels."""
    torch.manual_seed(7)
    return (Segmenter() if small else Segformer()).eval()


def loaded(file: Path) -> nn.Module:
    """The network whose weights are in a file, chosen by the names and shapes of its layers."""
    state = torch.load(file, weights_only=True)
    for kind in (Detector, Segmenter, Pyramid, Segformer):
        network = kind()
        if network.state_dict().keys() == state.keys() and all(
            value.shape == state[name].shape for name, value in network.state_dict().items()
        ):
            network.load_state_dict(state)
            return network.eval()
    raise ValueError(f"{file} has the weights of no network here")


def to_onnx(
    network: nn.Module, file: Path, name: str, output: str, example: torch.Tensor, axes: dict[int, Any]
) -> None:
    """Export a network whose first axis is the batch."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (example,),
            file,
            input_names=[name],
            output_names=[output],
            dynamic_shapes=({0: torch.export.Dim("batch"), **axes},),
            dynamo=True,
        )
