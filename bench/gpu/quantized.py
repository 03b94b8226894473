"""ResNet-50 of `make gpu` in INT8: QDQ pairs before its convolutions and FP16 for the rest, as the variant
`onnx-int8-qdq` has them.

ONNX Runtime's own quantizer writes them, because Model Optimizer needs PyTorch, which a machine with a GPU may lack.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from bench.gpu.networks import QDQ_OPSET, resnet, write
from bench.gpu.requests import items, padded

if TYPE_CHECKING:
    from bench.gpu.sizes import Size

__all__ = ["write_int8"]

_IMAGES = 8
"""Images from which the ranges of activations are taken."""
_SEED = 3
_ERRORS = 3
_RULES = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "QuantizeBias": False,
    "OpTypesToExcludeOutputQuantization": ["Conv"],
}


class _Images(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """One batch of images."""

    def __init__(self, pixels: int) -> None:
        self._batches = iter([padded(items("resnet50", _IMAGES, pixels, seed=_SEED))])

    def get_next(self) -> dict[str, Any] | None:
        """The batch, and then None."""
        return next(self._batches, None)


def write_int8(size: Size, file: Path) -> None:
    """Write the network with its ranges of a few images."""
    # The quantizer recommends a preparation that a folded network has had, and the CPU provider misses FP16 kernels.
    logging.getLogger().setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(_ERRORS)
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / "fp16.onnx"
        write(resnet("float16", size, QDQ_OPSET), half)
        file.parent.mkdir(parents=True, exist_ok=True)
        quantize_static(
            half,
            file,
            _Images(size.pixels),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options=_RULES,
        )
