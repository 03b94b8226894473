"""One value a caller gave, made into exactly the array the model declared, or refused.

Types. An array (anything with a dtype: numpy, torch on the CPU) keeps the type its owner chose, so
only casts that lose nothing by type are made (`numpy.can_cast(..., "safe")`: int32 to INT64,
float32 to FP64; never float64 to FP32, nor int64 to FP32). Python numbers and lists of them chose
no type and are taken by value: whole numbers go to any integer type they fit and to any float type
that holds them exactly, floats to any float type by rounding (never to an integer type, never past
its range), booleans to any type as 0 and 1. BYTES takes bytes, bytearray, memoryview and str (as
UTF-8), and arrays of them; numpy's own "S" arrays drop trailing zero bytes, so give lists of bytes
or object arrays instead. numpy has no BF16: float16 and float32 arrays are rounded to it.

Shapes. A model with max_batch_size 0 gets the array as it is. Otherwise the number of axes decides:
as many as the declared item has is one item, one more is a batch. An item declared as [1] is a
single value and may be written without its axis: a value is one item, N values in a row are N
items. (Both readings of one value in a row send the same tensor, so nothing is ambiguous.) A value
without axes also stands for an item of one value where [-1] is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.tensors import FIXED
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.signature import TensorSpec

__all__ = ["conform", "fits"]

_BF16_BITS = 8  # significant bits, the implicit one counted


def fits(value: Any, spec: TensorSpec) -> bool:
    """Whether `value` is already the array to send: the short way for the common case."""
    return (
        type(value) is np.ndarray
        and value.dtype == FIXED.get(spec.datatype)
        and spec.batched
        and value.shape[1:] == spec.dims
        and len(value) > 0
    )


def conform(value: Any, spec: TensorSpec, where: str) -> NDArray[Any]:
    """Make `value` fit `spec`.

    Returns:
        An array of the wire's type (float32 for BF16, objects holding bytes for BYTES), with a
        batch axis first if `spec.batched`; contiguous or not.

    Raises:
        InvalidInput: at `where`, when type, values or shape cannot fit.
    """
    array = _bytes_array(value, where) if spec.datatype == "BYTES" else _numbers(value, spec, where)
    return _shaped(array, spec, where)


def _numbers(value: Any, spec: TensorSpec, where: str) -> NDArray[Any]:
    target = FIXED.get(spec.datatype, FIXED["FP32"])
    if type(value) is np.ndarray and value.dtype == target:
        return value
    by_value = isinstance(value, (bool, int, float, list, tuple))
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise _not_an_array(value, spec.datatype, where, error) from error
    if by_value:
        return _from_values(array, spec, target, where)
    return _from_array(array, spec, target, where)


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
    kinds = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}[target.kind]
    if array.dtype.kind not in kinds:
        raise InvalidInput(
            where,
            found=f"Python values that numpy reads as {array.dtype.name}",
            wanted=f"{spec.datatype} ({_numpy_name(spec)})",
        )
    with np.errstate(over="ignore"):
        cast = array.astype(target)
    if not _holds(array, cast, spec):
        raise InvalidInput(
            where,
            found=f"values from {array.min()} to {array.max()}",
            wanted=f"values that {spec.datatype} can hold",
        )
    return cast


def _holds(array: NDArray[Any], cast: NDArray[Any], spec: TensorSpec) -> bool:
    """Whether every value survived the cast under the rules of this module."""
    if array.dtype.kind == "f":
        return bool(np.array_equal(np.isfinite(array), np.isfinite(cast)))
    if array.dtype.kind == "b" or cast.dtype.kind == "b":
        return True
    lowest, highest = int(array.min()), int(array.max())
    if cast.dtype.kind in "iu":
        limits = np.iinfo(cast.dtype)
        return limits.min <= lowest and highest <= limits.max
    bits = _BF16_BITS if spec.datatype == "BF16" else int(np.finfo(cast.dtype).nmant) + 1
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


def _bytes_array(value: Any, where: str) -> NDArray[Any]:
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


def _shaped(array: NDArray[Any], spec: TensorSpec, where: str) -> NDArray[Any]:
    array = _with_axes(array, spec)
    item = array.shape[1:] if spec.batched else array.shape
    if array.ndim != len(spec.dims) + spec.batched:
        raise InvalidInput(
            where,
            found=f"{array.ndim} axes, shape {list(array.shape)}",
            wanted=_wanted(spec),
        )
    if item != spec.dims:
        _check_sizes(array, item, spec, where)
    if spec.batched and array.shape[0] == 0:
        raise InvalidInput(where, found="an empty batch", wanted=_wanted(spec))
    return array


def _with_axes(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Add the axes a caller may leave out."""
    rank = len(spec.dims)
    if not spec.batched:
        return array.reshape(1) if array.ndim == 0 and spec.dims in ((1,), (-1,)) else array
    if spec.dims == (1,) and array.ndim <= 1:
        return array.reshape(-1, 1)
    if array.ndim == 0 and spec.dims == (-1,):
        return array.reshape(1, 1)
    return array[np.newaxis] if array.ndim == rank else array


def _check_sizes(array: NDArray[Any], item: tuple[int, ...], spec: TensorSpec, where: str) -> None:
    for axis, (found, wanted) in enumerate(zip(item, spec.dims, strict=True)):
        if wanted not in (-1, found):
            raise InvalidInput(
                where,
                found=f"axis {axis} of an item is {found}, sent shape {list(array.shape)}",
                wanted=f"{wanted} on that axis: {_wanted(spec)}",
            )


def _wanted(spec: TensorSpec) -> str:
    sizes = ", ".join("any" if size == -1 else str(size) for size in spec.dims)
    if not spec.batched:
        return f"shape [{sizes}]"
    return f"one item of shape [{sizes}], or a batch of shape [batch{', ' if sizes else ''}{sizes}]"
