"""Run an ONNX network with BF16 inputs or outputs, for which numpy has no type: its arrays are float32 here."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from tritonkit.extras import need

__all__ = ["has_bf16", "run_with_bf16"]

_BF16 = "tensor(bfloat16)"


def has_bf16(session: Any) -> bool:
    """Whether an ONNX Runtime session has a BF16 input or output."""
    return any(node.type == _BF16 for node in (*session.get_inputs(), *session.get_outputs()))


def run_with_bf16(session: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name; BF16 outputs as float32, which holds their values exactly."""
    ort, onnx = need("onnxruntime", "build"), need("onnx", "build")
    bf16 = {node.name for node in session.get_inputs() if node.type == _BF16}
    number = onnx.TensorProto.BFLOAT16
    feeds = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_shorten(array), number)
        if name in bf16
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in batch.items()
    }
    names = [node.name for node in session.get_outputs()]
    values = session.run_with_ort_values(names, feeds)
    return {
        name: _widen(value) if value.data_type() == _BF16 else value.numpy()
        for name, value in zip(names, values, strict=True)
    }


def _shorten(array: Any) -> Any:
    """The upper halves of float32 values as uint16, rounded to nearest, ties to even."""
    import numpy as np

    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def _widen(value: Any) -> Any:
    """A BF16 value as float32, read from its memory because numpy has no BF16."""
    import numpy as np

    shape = tuple(value.shape())
    count = math.prod(shape)
    if not count:
        return np.zeros(shape, np.float32)
    halves = np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(value.data_ptr()))
    return (halves.astype(np.uint32) << 16).view(np.float32).reshape(shape)
