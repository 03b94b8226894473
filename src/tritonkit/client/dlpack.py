"""Tensors in the memory of a GPU, passed between libraries by DLPack without a copy.

A capsule is read in place and kept: it gives its memory back when it is collected, as one that nobody took. Capsules
for others are numpy's own, whose device is rewritten, so that no Python function is a C library's deleter: numpy's is
safe in every thread and while the interpreter ends. Protocol: https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tritonkit.client.wire.tensors import FIXED, from_raw

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from numpy.typing import NDArray

__all__ = [
    "CUDA",
    "CUDA_KINDS",
    "HOST_KINDS",
    "Borrowed",
    "Copier",
    "DeviceArray",
    "any_on_device",
    "borrow",
    "dense_array",
    "dlpack_device",
    "host_array",
    "on_host",
]

_CPU, CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
CUDA_KINDS = frozenset((CUDA, _CUDA_MANAGED))
"""Kinds of memory on a GPU, or moved to it when it is used."""
HOST_KINDS = frozenset((_CPU, _CUDA_HOST))
"""Kinds of memory that the processor reads as it is: its own, and pinned memory."""

_BFLOAT = 4
_TYPES = {name: ({"i": 0, "u": 1, "f": 2, "b": 6}[dtype.kind], 8 * dtype.itemsize) for name, dtype in FIXED.items()}
_TYPES["BF16"] = (_BFLOAT, 16)
"""DLDataTypeCode and bits of each datatype."""
_DATATYPES = {code: name for name, code in _TYPES.items()}

_VERSION = (1, 0)
_LEGACY, _VERSIONED = b"dltensor", b"dltensor_versioned"


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """DLTensor, which begins a DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_CAPSULE = (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *_CAPSULE)(("PyCapsule_GetPointer", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *_CAPSULE)(("PyCapsule_IsValid", ctypes.pythonapi))


class Copier(Protocol):
    """Copies bytes from and to the memory of GPUs."""

    def copy(self, to: int, start: int, size: int, device: int) -> None:
        """Copy, and return when it is done: after all work that the copier's stream of `device` waits for."""


class Borrowed(NamedTuple):
    """A tensor in a capsule, valid while that lives. `datatype` is empty for types that Triton lacks."""

    address: int
    datatype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    capsule: Any

    @property
    def is_dense(self) -> bool:
        """Whether its elements lie in a row."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


class DeviceArray:
    """A tensor in the memory of a GPU.

    `torch.from_dlpack`, `cupy.from_dlpack` and `jax.dlpack.from_dlpack` take it without a copy. `numpy.asarray` copies
    it, read-only. The memory stays as it is until the array, its slices and all that was made of them are gone.
    """

    __slots__ = ("__weakref__", "_copier", "_owner", "address", "datatype", "device", "shape")

    def __init__(
        self, copier: Copier, address: int, device: int, datatype: str, shape: tuple[int, ...], owner: object
    ) -> None:
        self._copier = copier
        self.address = address
        self.device = device
        """The number of the GPU."""
        self.datatype = datatype
        """Triton's name for its type, such as FP16."""
        self.shape = shape
        self._owner = owner

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of `numpy.asarray`: float32 for BF16."""
        return FIXED.get(self.datatype, FIXED["FP32"])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes on the GPU."""
        return self.size * _TYPES[self.datatype][1] // 8

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.datatype} {list(self.shape)} on GPU {self.device})"

    def __getitem__(self, key: slice | None) -> DeviceArray:
        """Rows `start:stop`, or with None one more axis; the memory is shared."""
        if key is None:
            return self.part(0, self.datatype, (1, *self.shape))
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise TypeError(f"{self!r} gives rows start:stop; numpy.asarray() or torch.from_dlpack() give more")
        start, stop, _ = key.indices(len(self))
        rows = max(stop - start, 0)
        row_bytes = self.nbytes // (len(self) or 1)
        return self.part(start * row_bytes, self.datatype, (rows, *self.shape[1:]))

    def reshape(self, *shape: int) -> DeviceArray:
        """The same elements in another shape, in which one size may be -1."""
        rest = math.prod(size for size in shape if size != -1)
        return self.part(0, self.datatype, tuple(self.size // (rest or 1) if size == -1 else size for size in shape))

    def part(self, offset: int, datatype: str, shape: tuple[int, ...]) -> DeviceArray:
        """A tensor in its memory, from a byte on; it keeps this one."""
        return DeviceArray(self._copier, self.address + offset, self.device, datatype, shape, self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """A copy in the machine's memory, read-only unless `copy` is true, as for `numpy.array`."""
        if copy is False:
            raise ValueError(f"{self!r} cannot be read without a copy")
        raw = np.empty(self.nbytes, np.uint8)
        self._copier.copy(raw.ctypes.data, self.address, raw.nbytes, self.device)
        array = from_raw(raw.data, self.datatype, self.shape)
        array.flags.writeable = bool(copy)
        return array if dtype is None else array.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device, and the number of the GPU."""
        return CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the tensor, which keeps its memory.

        No `stream` has to wait: the server wrote everything before it answered.

        Raises:
            BufferError: another GPU is wanted, or a copy on this one.
        """
        if dl_device is not None and dl_device[0] == _CPU and copy is not False:
            return np.array(self).__dlpack__(**_versioned(max_version))
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"{self!r} is given as it is, or as a copy in the machine's memory")
        dtype = FIXED.get(self.datatype, FIXED["UINT16"])
        held = np.asarray(_Held(self.address, self.shape, None, dtype, self))
        capsule = held.__dlpack__(**_versioned(max_version))
        tensor = _tensor(capsule)
        tensor.device = _Device(CUDA, self.device)
        tensor.dtype.code = _TYPES[self.datatype][0]
        return capsule


class _Held:
    """Memory as numpy sees it; its arrays keep the owner and never look at the bytes on their own."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype[Any], owner: object
    ) -> None:
        self._owner = owner
        steps = None if strides is None else tuple(stride * dtype.itemsize for stride in strides)
        place = {"data": (address, False), "shape": shape, "strides": steps}
        self.__array_interface__ = {"version": 3, "typestr": dtype.str, **place}


def dlpack_device(value: Any) -> tuple[int, int] | None:
    """DLPack's kind of device and its number; None for numpy's arrays, and for what DLPack does not pass on."""
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__dlpack_device__"):
        return None
    try:
        kind, number = value.__dlpack_device__()
        return int(kind), int(number)
    except (BufferError, RuntimeError, TypeError, ValueError):  # on a device that DLPack lacks, on several, or a class
        return None


def borrow(value: Any, stream: int | None) -> Borrowed:
    """The tensor of another library, once work on the CUDA stream is ordered after its own.

    Raises:
        BufferError: the library does not export it, or in an unknown version.
    """
    stream_only = {} if stream is None else {"stream": stream}
    try:
        capsule = value.__dlpack__(max_version=_VERSION, **stream_only)
    except TypeError:  # a library older than DLPack 1.0
        capsule = value.__dlpack__(**stream_only)
    tensor = _tensor(capsule)
    axes = range(tensor.ndim)
    shape = tuple(tensor.shape[axis] for axis in axes)
    dense = (math.prod(shape[axis + 1 :]) for axis in axes)
    strides = tuple(tensor.strides[axis] for axis in axes) if tensor.strides else tuple(dense)
    dtype = tensor.dtype
    datatype = _DATATYPES.get((dtype.code, dtype.bits), "") if dtype.lanes == 1 else ""
    return Borrowed((tensor.data or 0) + tensor.byte_offset, datatype, shape, strides, capsule)


def dense_array(value: Any) -> Any:
    """A tensor of another library as that library puts its elements in a row, if it has a method for it."""
    make = getattr(value, "contiguous", None) or getattr(value, "copy", None)  # torch's, CuPy's
    return value if make is None else make()


def host_array(value: Any) -> tuple[NDArray[Any], str]:
    """A tensor of another library in this machine's memory, and the name of its type.

    The array is a view of it; bfloat16 is read as float32.

    Raises:
        BufferError, RuntimeError: numpy lacks the type, or the library does not export it.
    """
    bits = borrow(value, None)
    if bits.datatype != "BF16":
        array = np.from_dlpack(value)
        return array, array.dtype.name
    held = np.asarray(_Held(bits.address, bits.shape, bits.strides, FIXED["UINT16"], bits.capsule))
    return from_raw(held.tobytes(), "BF16", bits.shape), "bfloat16"


def any_on_device(arrays: Iterable[Any]) -> bool:
    """Whether one of the arrays lies on a GPU."""
    return any(type(array) is DeviceArray for array in arrays)


def on_host(arrays: Mapping[str, Any], but: Container[str]) -> dict[str, NDArray[Any]]:
    """The arrays, those on a GPU as copies in this machine's memory, except for some names."""
    return {
        name: np.asarray(array) if type(array) is DeviceArray and name not in but else array
        for name, array in arrays.items()
    }


def _tensor(capsule: Any) -> _Tensor:
    if not _is_valid(capsule, _VERSIONED):
        return _Tensor.from_address(_pointer(capsule, _LEGACY))
    managed = _Versioned.from_address(_pointer(capsule, _VERSIONED))
    if managed.major != _VERSION[0]:
        raise BufferError(f"a capsule of DLPack {managed.major}.{managed.minor}, not of version 1")
    tensor: _Tensor = managed.tensor
    return tensor


def _versioned(max_version: tuple[int, int] | None) -> dict[str, Any]:
    """The argument that makes numpy give a versioned capsule, from numpy 2.1 on."""
    is_new = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    return {"max_version": max_version} if is_new else {}
