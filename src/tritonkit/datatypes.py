"""The one table of tensor datatypes: their names in Triton, its configuration, numpy, ONNX and PyTorch.

Requests use the names of the Open Inference Protocol
(https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md), with
Triton's BF16 added; `TYPE_*` are names of Triton's model_config.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BY_CONFIG", "BY_ONNX", "DATATYPES", "NUMPY_DTYPES", "DataType", "Datatype"]

DataType = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
"""The name of a datatype in a request and in a spec."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """One line of the table."""

    name: DataType
    config: str
    """Its name in `config.pbtxt`."""
    size: int | None
    """Bytes of one element; None for BYTES, whose elements have any length."""
    numpy: str | None
    """Its numpy name; None if numpy has no such type. tritonkit's arrays hold BF16 as float32, BYTES as objects."""
    onnx: str
    """Its name in `TensorProto.DataType`."""
    torch: str | None
    """Type of the tensor that Triton's pytorch backend makes (ConvertDataTypeToTorchType); None if it makes none."""
    contents_field: int | None
    """The field of `InferTensorContents` that holds its elements; None if only raw bytes can."""


_TABLE = (
    #        name      config         size  numpy      onnx        torch       contents_field
    Datatype("BOOL", "TYPE_BOOL", 1, "bool", "BOOL", "bool", 1),
    Datatype("UINT8", "TYPE_UINT8", 1, "uint8", "UINT8", "uint8", 4),
    Datatype("UINT16", "TYPE_UINT16", 2, "uint16", "UINT16", None, 4),
    Datatype("UINT32", "TYPE_UINT32", 4, "uint32", "UINT32", None, 4),
    Datatype("UINT64", "TYPE_UINT64", 8, "uint64", "UINT64", None, 5),
    Datatype("INT8", "TYPE_INT8", 1, "int8", "INT8", "int8", 2),
    Datatype("INT16", "TYPE_INT16", 2, "int16", "INT16", "int16", 2),
    Datatype("INT32", "TYPE_INT32", 4, "int32", "INT32", "int32", 2),
    Datatype("INT64", "TYPE_INT64", 8, "int64", "INT64", "int64", 3),
    Datatype("FP16", "TYPE_FP16", 2, "float16", "FLOAT16", "float16", None),
    Datatype("BF16", "TYPE_BF16", 2, None, "BFLOAT16", None, None),
    Datatype("FP32", "TYPE_FP32", 4, "float32", "FLOAT", "float32", 6),
    Datatype("FP64", "TYPE_FP64", 8, "float64", "DOUBLE", "float64", 7),
    Datatype("BYTES", "TYPE_STRING", None, None, "STRING", None, 8),
)

DATATYPES: dict[str, Datatype] = {row.name: row for row in _TABLE}
BY_CONFIG: dict[str, Datatype] = {row.config: row for row in _TABLE}
BY_ONNX: dict[str, Datatype] = {row.onnx: row for row in _TABLE}
NUMPY_DTYPES: dict[str, str] = {row.name: row.numpy for row in _TABLE if row.numpy is not None}
"""Datatype -> numpy's name, for the datatypes that numpy has."""
