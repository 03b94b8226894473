"""The types of what callers give, made into the types of the wire, or refused.

An array (anything with a dtype: numpy, torch on the CPU) keeps the type its owner chose, so
only casts that lose nothing by type are made (`numpy.can_cast(..., "safe")`: int32 to INT64,
float32 to FP64; never float64 to FP32, nor int64 to FP32). Python numbers and lists of them chose
no type and are taken by value: whole numbers go to any integer type they fit and to any float type
that holds them exactly, floats to any float type by rounding (never to an integer type, never past
its range), booleans to any type as 0 and 1. BYTES takes bytes, bytearray, memoryview and str (as
UTF-8), and arrays of them; numpy's own "S" arrays drop trailing zero bytes, so give lists of bytes
or object arrays instead. numpy has no BF16: float16 and float32 arrays are rounded to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import InvalidInput
from tritonkit.wire.tensors import FIXED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.wire.signature import TensorSpec

__all__ = ["bytes_array", "number_array"]

_BF16_BITS = 8  # significant bits, the implicit one counted
_WHOLE = 2**63  # from here on numpy reads a list of whole numbers as floats, or as objects


def number_array(value: Any, spec: TensorSpec, where: str) -> NDArray[Any]:
    """Numbers or booleans as an array of the type declared (float32 for BF16), in their own shape.

    Raises:
        InvalidInput: at `where`, when the type or a value does not fit.
    """
    target = FIXED.get(spec.datatype, FIXED["FP32"])
    if type(value) is np.ndarray and value.dtype == target:
        return value
    chosen = isinstance(value, np.generic) or not isinstance(value, (bool, int, float, list, tuple))
    try:
        array = np.asarray(value) if chosen else _read(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise _not_an_array(value, spec.datatype, where, error) from error
    if chosen:
        return _from_array(array, spec, target, where)
    return _from_values(array, spec, target, where)


def _read(value: Any) -> NDArray[Any]:
    """An array of Python values; whole numbers too large for numpy's choice of type as objects."""
    array = np.asarray(value)
    if array.dtype.kind == "f" and array.size and np.abs(array).max() >= _WHOLE:
        exact = np.array(value, dtype=object)
        return exact if all(type(cell) is int for cell in exact.flat) else array
    return array


def _from_array(
    array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any], where: str
) -> NDArray[Any]:
    if spec.datatype == "BF16" and array.dtype.name == "bfloat16":
        return array.astype(target)
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, target, "safe"):
        raise InvalidInput(
            where,
            found=f"an array of {array.dtype.name}",
            wanted=f"{spec.datatype} ({_numpy_name(spec)})",
            todo=f"if the loss is meant: array.astype(numpy.{target.name})",
        )
    return array.astype(target, copy=False)


def _from_values(
    array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any], where: str
) -> NDArray[Any]:
    if array.size == 0:
        return array.astype(target)
    kind = array.dtype.kind
    if kind == "O" and all(type(cell) is int for cell in array.flat):
        kind = "i"
    if kind not in {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}[target.kind]:
        raise InvalidInput(
            where,
            found=f"Python values that numpy reads as {array.dtype.name}",
            wanted=f"{spec.datatype} ({_numpy_name(spec)})",
        )
    fits = _floats_fit(array, target) if kind == "f" else _whole_fit(array, spec, target)
    if not fits:
        raise InvalidInput(
            where,
            found=f"values from {array.min()} to {array.max()}",
            wanted=f"values that {spec.datatype} can hold",
        )
    return array.astype(target)


def _floats_fit(array: NDArray[Any], target: np.dtype[Any]) -> bool:
    """Whether no finite value becomes infinite."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(np.isfinite(array), np.isfinite(array.astype(target))))


def _whole_fit(array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any]) -> bool:
    """Whether the type holds every whole number up to the largest here."""
    if target.kind == "b":
        return True
    lowest, highest = int(array.min()), int(array.max())
    if target.kind in "iu":
        limits = np.iinfo(target)
        return limits.min <= lowest and highest <= limits.max
    bits = _BF16_BITS if spec.datatype == "BF16" else int(np.finfo(target).nmant) + 1
    exact: int = 2**bits
    return -exact <= lowest and highest <= exact


def _not_an_array(value: Any, datatype: str, where: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        where,
        found=f"a {type(value).__name__} that is not a rectangular array",
        wanted=f"{datatype} values",
        details=str(error),
    )


def _numpy_name(spec: TensorSpec) -> str:
    dtype = FIXED.get(spec.datatype)
    return f"numpy {dtype.name}" if dtype is not None else "numpy float32, rounded"


def bytes_array(value: Any, where: str) -> NDArray[Any]:
    """Texts or buffers as an object array of bytes, in their own shape.

    Raises:
        InvalidInput: at `where`, when something is neither.
    """
    if isinstance(value, (bytes, str, bytearray, memoryview)):
        cells = np.empty((), dtype=object)
        cells[()] = _cell(value, where)
        return cells
    try:
        by_value = isinstance(value, (list, tuple))
        array = np.array(_frozen(value), dtype=object) if by_value else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise _not_an_array(value, "BYTES", where, error) from error
    if array.dtype.kind not in "OSU" and array.size:
        raise InvalidInput(
            where,
            found=f"an array of {array.dtype.name}",
            wanted="BYTES: bytes or str, or an object array of them",
            todo="for a file held in a uint8 array pass array.tobytes()",
        )
    cells = np.empty(array.shape, dtype=object)
    for at, cell in np.ndenumerate(array):
        cells[at] = _cell(cell, where)
    return cells


def _frozen(value: Any) -> Any:
    """Mutable buffers as bytes: numpy would take each for a row of numbers."""
    if isinstance(value, (list, tuple)):
        return [_frozen(item) for item in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _cell(value: Any, where: str) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, str):
        raise InvalidInput(
            where,
            found=f"an element of type {type(value).__name__}",
            wanted="bytes or str in every place of a rectangular list or array",
        )
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            where,
            found="a str that is not valid Unicode (a lone surrogate)",
            wanted="text that UTF-8 can carry",
            todo="pass bytes if the data is not text",
            details=str(error),
        ) from error
