"""Triton's datatypes as numpy's, and texts as bytes: the part of triton_python_backend_utils that needs no model."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

TYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
"""Names in requests; configurations call BYTES a string. Triton numbers them in this order, from 1."""


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a datatype such as `TYPE_FP32`."""
    datatype = triton_type_string.removeprefix("TYPE_")
    return TYPES["BYTES" if datatype == "STRING" else datatype]


def triton_to_numpy_type(data_type: int) -> Any:
    """The numpy type of a datatype's number."""
    return dict(enumerate(TYPES.values(), 1)).get(data_type)


def numpy_to_triton_type(data_type: Any) -> Any:
    """The number of a numpy type; None for one that Triton has not."""
    if data_type == np.bytes_ or np.dtype(data_type).kind == "S":
        return 13
    return next((number for number, known in enumerate(TYPES.values(), 1) if data_type == known), None)


def serialize_byte_tensor(input_tensor: np.ndarray) -> Any:
    """The elements of an array of texts as bytes, each after its length."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    items = (item if isinstance(item, bytes) else str(item).encode() for item in input_tensor.ravel().tolist())
    return b"".join(struct.pack("<I", len(item)) + item for item in items)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray:
    """The texts in such bytes."""
    texts, place = [], 0
    while place < len(encoded_tensor):
        (length,) = struct.unpack_from("<I", encoded_tensor, place)
        texts.append(bytes(encoded_tensor[place + 4 : place + 4 + length]))
        place += 4 + length
    return np.array(texts, dtype=np.object_)
