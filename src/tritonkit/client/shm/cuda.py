"""Memory of a GPU that a server on the same machine can open, by CUDA's interprocess handles.

Arrays of numpy are copied to the GPU and back here, by NVIDIA's package cuda-python.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.wire.messages import message
from tritonkit.errors import UsageError
from tritonkit.extras import need_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["CudaMemory", "cuda_maker"]

_HANDLE_SIZE = 64  # CUDA_IPC_HANDLE_SIZE


def cuda_maker(device: int) -> Callable[[int], CudaMemory]:
    """The maker of regions on one GPU.

    Raises:
        UsageError: cuda-python is not installed, or there is no such GPU.
    """
    runtime = need_package("cuda.bindings.runtime", "tritonclient[cuda]")
    count = _checked(runtime, runtime.cudaGetDeviceCount(), "looking for GPUs")
    if not device < count:
        raise UsageError(
            f"SharedMemory(device={device})",
            found=f"{count} GPUs",
            wanted="the number of one, from 0 on",
            todo="use device=None for the machine's own memory",
        )
    return partial(CudaMemory, runtime, device)


class CudaMemory:
    """`size` bytes of a GPU's memory, held until `free`: CUDA forbids freeing memory that another process has open.

    Raises:
        UsageError: the GPU has no room for it.
    """

    def __init__(self, runtime: Any, device: int, size: int) -> None:
        self.size = size
        self._runtime = runtime
        self._device = device
        self._done("choosing the GPU", runtime.cudaSetDevice(device))
        self._address = self._done(f"taking {size} bytes", runtime.cudaMalloc(size))

    def request(self, name: str) -> bytes:
        """The message that lets a server open it under `name`."""
        handle = self._done("sharing memory", self._runtime.cudaIpcGetMemHandle(self._address))
        raw = bytes((ctypes.c_char * _HANDLE_SIZE).from_address(handle.getPtr()))
        place = {"raw_handle": raw, "device_id": self._device, "byte_size": self.size}
        return message("CudaSharedMemoryRegister", name=name, **place)

    def hide(self) -> None:
        """Do nothing: the memory has a handle and no name."""

    def write(self, offset: int, array: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Copy an array of any layout and byte order, as row-major values of `dtype`."""
        source = np.ascontiguousarray(array, dtype)
        self._copy(self._address + offset, source.ctypes.data, source.nbytes)

    def whole(self) -> NDArray[np.uint8]:
        """A copy of all of it in the machine's memory."""
        copied = np.empty(self.size, np.uint8)
        self._copy(copied.ctypes.data, self._address, self.size)
        copied.flags.writeable = False
        return copied

    def free(self) -> None:
        """Give it back to the GPU."""
        address, self._address = self._address, 0
        if address:
            self._runtime.cudaFree(address)

    def _copy(self, to: int, start: int, size: int) -> None:
        self._done("choosing the GPU", self._runtime.cudaSetDevice(self._device))
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDefault
        # Synchronous: the bytes are there before the request leaves.
        self._done("copying", self._runtime.cudaMemcpy(to, start, size, kind))

    def _done(self, doing: str, answer: Any) -> Any:
        return _checked(self._runtime, answer, f"GPU {self._device}, {doing}")


def _checked(runtime: Any, answer: Any, doing: str) -> Any:
    """The value of a CUDA call, which answers with a tuple of status and value."""
    status, *values = answer
    if int(status) != 0:
        name = runtime.cudaGetErrorString(status)[1]
        raise UsageError(
            f"CUDA shared memory: {doing}",
            found=name.decode() if isinstance(name, bytes) else str(name),
            wanted="a GPU in this machine with room for the call's tensors",
            todo="use SharedMemory(device=None) for the machine's own memory",
        )
    return values[0] if values else None
