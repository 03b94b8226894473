"""Reads callers' arrays as numpy arrays; one table lists the types that each datatype holds.

Types that numpy lacks come from ml_dtypes and torch: bfloat16, the small floats, and integers of fewer
than 8 bits. Each is read as the numpy type that holds all its values, and keeps its own name for the table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.dlpack import CUDA_KINDS, HOST_KINDS, dlpack_device, host_array
from tritonkit.client.wire.tensors import FIXED
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["holds_all", "read_array", "read_values", "type_name", "without_history"]

_WIDE = frozenset(("BF16", "FP32", "FP64"))
_ALL_FLOATS = _WIDE | {"FP16"}
_SIGNED = _ALL_FLOATS | {"INT8", "INT16", "INT32", "INT64"}

_SMALL_FLOATS = (
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
_SMALL: dict[str, tuple[str, frozenset[str]]] = {
    "bfloat16": ("float32", _WIDE),
    "float8_e8m0fnu": ("float32", _WIDE),
    **dict.fromkeys(_SMALL_FLOATS, ("float32", _ALL_FLOATS)),
    "int2": ("int8", _SIGNED),
    "int4": ("int8", _SIGNED),
    "uint2": ("uint8", _SIGNED | {"UINT8", "UINT16", "UINT32", "UINT64"}),
    "uint4": ("uint8", _SIGNED | {"UINT8", "UINT16", "UINT32", "UINT64"}),
}
"""Types of ml_dtypes and torch, each with the numpy type and the datatypes that hold all its values."""

_BF16 = frozenset(("bool", "int8", "uint8", "float16", "float32"))
"""Numpy's types accepted for BF16: floats are rounded to it, because numpy has no BF16."""

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
"""Python's own values, which need no reading."""

_UNREADABLE = (BufferError, RuntimeError, TypeError, ValueError, NotImplementedError)
"""Errors of libraries that cannot give their arrays to numpy."""


@lru_cache(1024)
def holds_all(datatype: str, name: str) -> bool:
    """Whether a datatype takes every value of a type, by the type's name; what numpy calls a safe cast.

    Numpy also calls int64 to float64 safe, although it is not exact above 2**53; there the values decide.
    """
    if name in _SMALL:
        return datatype in _SMALL[name][1]
    if datatype == "BF16":
        return name in _BF16
    target = FIXED.get(datatype)
    if target is None or (datatype == "FP64" and name in ("int64", "uint64")):
        return False
    try:
        source = np.dtype(name)
    except TypeError:
        return False
    return source.kind in "biuf" and np.can_cast(source, target, "safe")


def type_name(value: Any) -> str:
    """The type of an array's elements, as its owner calls it, without `torch.`; empty without one."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return ""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def read_array(value: Any, where: str) -> tuple[NDArray[Any], str]:
    """Any array or value as a numpy array, small types as those that hold them, and the name of its own type.

    Raises:
        InvalidInput: masked values, memory of another device, or not an array; the message names `where`.
        ValueError, TypeError, OverflowError, RuntimeError: numpy cannot read it.
    """
    if isinstance(value, np.ma.MaskedArray):
        value = _shown(value, where)
    if _is_tensor(value):
        name = type_name(value)
        return _read_tensor(value, name, where), name
    device = dlpack_device(value)
    if device is not None:
        array, name = _read_foreign(value, device, where)
    else:
        array = np.asarray(value)
        name = array.dtype.name
    if name in _SMALL:
        with np.errstate(invalid="ignore"):  # a signaling NaN becomes a quiet one
            array = array.astype(_SMALL[name][0])
    return array, name


def read_values(value: Any, where: str) -> Any:
    """A list whose arrays have been read, so that numpy makes one array of it.

    Raises:
        InvalidInput: `read_array` refuses one of its arrays.
    """
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _PLAIN:
            return value
        return [read_values(item, where) for item in value]
    if isinstance(value, np.ma.MaskedArray) or _is_tensor(value) or type_name(value) in _SMALL:
        return read_array(value, where)[0]
    return value if dlpack_device(value) is None else read_array(value, where)[0]


def without_history(value: Any) -> Any:
    """A torch tensor without its gradient and with its values as they are in memory; other values unchanged."""
    return value.detach().resolve_conj().resolve_neg() if _is_tensor(value) else value


def _shown(value: np.ma.MaskedArray[Any, Any], where: str) -> NDArray[Any]:
    """The data of a masked array that masks nothing."""
    hidden = int(np.count_nonzero(np.ma.getmaskarray(value)))
    if hidden or value is np.ma.masked:
        raise InvalidInput(
            where,
            found=f"a masked array with {hidden} of {value.size} values masked",
            wanted="an array without hidden values",
            todo="array.filled(VALUE) puts a value in their places; array.compressed() leaves them out",
        )
    return np.ma.getdata(value)


def _is_tensor(value: Any) -> bool:
    """Whether the value is a torch tensor; torch is not loaded to find out."""
    return str(getattr(value, "dtype", "")).startswith("torch.")


def _read_foreign(value: Any, device: tuple[int, int], where: str) -> tuple[NDArray[Any], str]:
    """An array of another library that DLPack passes on, and the name of its type."""
    kind, number = device
    problem: Exception | None = None
    try:
        if kind in HOST_KINDS and not hasattr(value, "__array__"):
            return host_array(value)
        array = _copied(value) if kind in CUDA_KINDS else np.asarray(value)
        if array.dtype.kind != "O":
            return array, array.dtype.name
    except _UNREADABLE as error:
        problem = error
    place = "this machine" if kind in HOST_KINDS else f"device {number} (DLPack's kind {kind})"
    found = f"a {type(value).__name__} in the memory of {place} that its library does not give to numpy"
    raise _elsewhere(where, found, "copy it to a numpy array", str(problem or "")) from problem


def _copied(value: Any) -> NDArray[Any]:
    """An array on a GPU, as its library copies it to the machine's memory."""
    if hasattr(value, "get"):  # CuPy, which has an __array__ that refuses
        return np.asarray(value.get())
    return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value, device="cpu")


def _elsewhere(where: str, found: str, todo: str, details: str) -> InvalidInput:
    wanted = "one in this machine's memory, or on a CUDA GPU"
    return InvalidInput(where, found=found, wanted=wanted, todo=todo, details=details)


def _read_tensor(value: Any, name: str, where: str) -> NDArray[Any]:
    kind = value.device.type
    if kind not in ("cpu", "cuda"):
        raise _elsewhere(where, f"a tensor in the memory of {value.device}", "tensor.cpu()", "")
    tensor = without_history(value)
    try:
        if kind == "cuda":
            tensor = tensor.cpu()
        if name in _SMALL and name.startswith(("float", "bfloat")):
            tensor = tensor.float()
        array: NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise InvalidInput(
            where,
            found=f"a tensor of {value.dtype}, layout {value.layout}, which numpy cannot read",
            wanted="a dense tensor of numbers",
            todo="tensor.to_dense(), or tensor.to(TYPE), makes one",
            details=str(error),
        ) from error
    return array
