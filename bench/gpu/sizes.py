"""The names and sizes of the models of `make gpu`. A machine with a bundle has no ONNX, and reads them here."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENCODER", "FP16", "FP32", "FULL", "INT8", "MLP", "SMALL", "TF32", "Size"]

FP32, FP16, ENCODER, MLP = "resnet50_fp32", "resnet50_fp16", "encoder_fp16", "mlp_fp32"
TF32, INT8 = "resnet50_tf32", "resnet50_int8"


@dataclass(frozen=True)
class Size:
    """The sizes of the networks.

    Args:
        pixels: the height and width of ResNet's images.
        thin: the divisor of ResNet's channels.
        layers, width, heads, vocabulary: those of the encoder.
        most: the largest number of tokens.
    """

    pixels: int = 224
    thin: int = 1
    layers: int = 6
    width: int = 384
    heads: int = 12
    vocabulary: int = 30522
    most: int = 130


FULL = Size()
SMALL = Size(pixels=32, thin=16, layers=1, width=32, heads=4, vocabulary=512, most=32)
"""The sizes of a rehearsal on the CPU."""
