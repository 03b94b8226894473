"""The types of what callers give, made into the types of the wire, or refused.

An array (anything with a dtype: numpy, ml_dtypes, torch, and what DLPack passes on) keeps the type its owner
chose, so only casts that lose nothing are made: int32 to INT64, bfloat16 to FP32; never float64 to FP32, nor int64 to
INT32. `arrays.holds_all` is the table. Python numbers and lists, also lists of arrays, are taken by value: whole
numbers go to any integer type they fit and to any float type that holds them exactly, floats to any float type
by rounding (never to an integer type, never past its range), booleans to any type as 0 and 1. Masked
arrays are refused where they hide values. BYTES takes bytes, bytearray, memoryview and str (as UTF-8), and
arrays of them, numpy's own text types too; numpy's "S" arrays drop trailing zero bytes, so give lists of bytes
or object arrays instead. numpy has no BF16: float16 and float32 arrays are rounded to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.arrays import holds_all, read_array, read_values
from tritonkit.client.wire.tensors import FIXED
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.wire.signature import TensorSpec

__all__ = ["bytes_array", "number_array"]

_BF16_BITS = 8  # significant bits, the implicit one counted
_BF16_MAX = (2**8 - 1) * 2**120
_BF16_INFINITE = float((2**9 - 1) * 2**119)  # what is rounded to infinity begins here
_WHOLE = 2**63  # from here on numpy reads a list of whole numbers as floats, or as objects

_UNREADABLE = (ValueError, TypeError, OverflowError, RuntimeError)


def number_array(value: Any, spec: TensorSpec, where: str) -> NDArray[Any]:
    """Numbers or booleans as an array of the type declared (float32 for BF16), in their own shape.

    Raises:
        InvalidInput: the type or a value does not fit; the message names `where`.
    """
    target = FIXED.get(spec.datatype, FIXED["FP32"])
    if type(value) is np.ndarray and value.dtype == target:
        return value
    by_value = isinstance(value, (bool, int, float, list, tuple, range))
    chosen = isinstance(value, np.generic) or not by_value
    try:
        if chosen:
            array, name = read_array(value, where)
        else:
            array = _read(read_values(value, where))
    except _UNREADABLE as error:
        raise _not_an_array(value, spec.datatype, where, error) from error
    if chosen:
        return _from_array(array, name, spec, target, where)
    return _from_values(array, spec, target, where)


def _read(value: Any) -> NDArray[Any]:
    """An array of Python values; whole numbers too large for numpy's choice of type as objects."""
    array = np.asarray(value)
    if array.dtype == np.float64 and array.size and np.abs(array).max() >= _WHOLE:
        exact = np.array(value, dtype=object)
        if all(isinstance(cell, (int, np.integer)) for cell in exact.flat):
            return np.array([int(cell) for cell in exact.flat], object).reshape(exact.shape)
    return array


def _from_array(array: NDArray[Any], name: str, spec: TensorSpec, target: np.dtype[Any], where: str) -> NDArray[Any]:
    """An array whose owner chose the type of this name."""
    datatype = spec.datatype
    if datatype == "FP64" and name in ("int64", "uint64"):
        return _from_values(array, spec, target, where)  # exact or not: the values decide
    if not holds_all(datatype, name):
        raise InvalidInput(
            where,
            found=_described(array, name),
            wanted=f"{datatype} ({_numpy_name(spec)})",
            todo=_way_out(array, target),
        )
    with np.errstate(invalid="ignore"):  # a signaling NaN becomes a quiet one
        return array.astype(target, copy=False)


def _described(array: NDArray[Any], name: str) -> str:
    """A refused array, in a few words."""
    kind = array.dtype.kind
    if kind == "O" and array.size:
        return f"an array of object, whose first element is a {type(array.flat[0]).__name__}"
    if array.dtype.names:
        return f"an array of {name} with the fields {', '.join(array.dtype.names)}"
    if kind in "SU" or name.startswith("StringDType"):
        return f"an array of {name}, which is text"
    return f"an array of {name}"


def _way_out(array: NDArray[Any], target: np.dtype[Any]) -> str:
    """The call that makes the type fit, where there is one."""
    kind = array.dtype.kind
    if kind == "O":
        return f"numpy.asarray(array.tolist()), or array.astype(numpy.{target.name})"
    if kind == "c":
        return "send array.real and array.imag, if both are meant"
    if kind in "mM":
        return "array.astype('int64') is the count of its units"
    if array.dtype.names:
        return f"send one field of it: array[{array.dtype.names[0]!r}]"
    if kind in "SUT":
        return f"if numbers are written in it: array.astype(numpy.{target.name})"
    if kind == "V":
        return ""
    return f"if the loss is meant: array.astype(numpy.{target.name})"


def _from_values(array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any], where: str) -> NDArray[Any]:
    if array.size == 0:
        return array.astype(target)
    kind = array.dtype.kind
    if kind == "O" and all(type(cell) is int for cell in array.flat):
        kind = "i"
    if kind not in {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}[target.kind]:
        raise InvalidInput(where, found=_described_values(array), wanted=f"{spec.datatype} ({_numpy_name(spec)})")
    fits = _floats_fit(array, spec, target) if kind == "f" else _whole_fit(array, spec, target)
    if not fits:
        raise InvalidInput(
            where, found=f"values from {array.min()} to {array.max()}", wanted=f"values that {spec.datatype} can hold"
        )
    return array.astype(target)


def _described_values(array: NDArray[Any]) -> str:
    odd = next((cell for cell in array.flat if not isinstance(cell, (int, float, np.number))), None)
    if array.dtype.kind == "O" and array.size:
        return f"Python values, one of which is a {type(odd).__name__}"
    return f"Python values that numpy reads as {array.dtype.name}"


def _floats_fit(array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any]) -> bool:
    """Whether no finite value becomes infinite."""
    finite = np.isfinite(array)
    if spec.datatype == "BF16":
        return bool(np.all(np.abs(array[finite].astype(np.float64)) < _BF16_INFINITE))
    with np.errstate(over="ignore"):
        return bool(np.array_equal(finite, np.isfinite(array.astype(target))))


def _whole_fit(array: NDArray[Any], spec: TensorSpec, target: np.dtype[Any]) -> bool:
    """Whether the type holds each of these whole numbers."""
    if target.kind == "b":
        return True
    lowest, highest = int(array.min()), int(array.max())
    if target.kind in "iu":
        limits = np.iinfo(target)
        return bool(limits.min <= lowest and highest <= limits.max)
    is_bf16 = spec.datatype == "BF16"
    bits = _BF16_BITS if is_bf16 else int(np.finfo(target).nmant) + 1
    exact: int = 2**bits
    if -exact <= lowest and highest <= exact:
        return True
    largest = _BF16_MAX if is_bf16 else int(np.finfo(target).max)
    return max(-lowest, highest) <= largest and all(_significant(abs(int(cell))) <= bits for cell in array.flat)


def _significant(number: int) -> int:
    """Bits from the first to the last that is set."""
    return (number // (number & -number)).bit_length() if number else 0


def _not_an_array(value: Any, datatype: str, where: str, error: Exception) -> InvalidInput:
    ragged = isinstance(value, (list, tuple, np.ndarray))
    return InvalidInput(
        where,
        found=f"a {type(value).__name__} that is not {'a rectangular' if ragged else 'an'} array",
        wanted=f"{datatype} values",
        details=str(error),
    )


def _numpy_name(spec: TensorSpec) -> str:
    dtype = FIXED.get(spec.datatype)
    return f"numpy {dtype.name}" if dtype is not None else "numpy float32, rounded"


def bytes_array(value: Any, where: str) -> NDArray[Any]:
    """Texts or buffers as an object array of bytes, in their own shape.

    Raises:
        InvalidInput: a value is neither; the message names `where`.
    """
    if isinstance(value, (bytes, str, bytearray, memoryview)):
        cells = np.empty((), dtype=object)
        cells[()] = _cell(value, where)
        return cells
    try:
        by_value = isinstance(value, (list, tuple))
        source = _frozen(read_values(value, where)) if by_value else value
        array = np.array(source, dtype=object) if by_value else read_array(value, where)[0]
    except _UNREADABLE as error:
        raise _not_an_array(value, "BYTES", where, error) from error
    if array.dtype.kind not in "OSUT" and not _is_raw(array.dtype) and array.size:
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


def _is_raw(dtype: np.dtype[Any]) -> bool:
    """Whether elements are bytes without a meaning, all of one length: `numpy.void`."""
    return type(dtype) is np.dtypes.VoidDType and dtype.names is None and dtype.subdtype is None


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
    if isinstance(value, np.void) and _is_raw(value.dtype):
        return value.tobytes()
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
