"""Memory of a GPU that a server on the same machine can open, by CUDA's interprocess handles.

NVIDIA's package cuda-python copies arrays there: those of numpy over the bus, those of torch, CuPy and JAX on the GPU.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.arrays import without_history
from tritonkit.client.dlpack import CUDA, CUDA_KINDS, Borrowed, DeviceArray, borrow, dense_array, dlpack_device
from tritonkit.client.wire.messages import message
from tritonkit.errors import UsageError
from tritonkit.extras import need_package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["CudaDevice", "CudaMemory"]

_HANDLE_SIZE = 64  # CUDA_IPC_HANDLE_SIZE
_NON_BLOCKING = 1  # cudaStreamNonBlocking: does not wait for the legacy default stream, nor it for this one


class CudaDevice:
    """One GPU whose memory a client shares with its servers. Threads may share it.

    Copies run on streams of their own and are over when a method returns. The thread's current GPU stays what it was.

    Args:
        device: the number of the GPU.

    Raises:
        UsageError: cuda-python is not installed, or there is no such GPU.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self._runtime = need_package("cuda.bindings.runtime", "tritonclient[cuda]")
        self._driver = need_package("cuda.bindings.driver", "tritonclient[cuda]")
        count = self._done("looking for GPUs", self._runtime.cudaGetDeviceCount())
        if not device < count:
            raise UsageError(
                f"SharedMemory(device={device})",
                found=f"{count} GPUs",
                wanted="the number of one, from 0 on",
                todo="use device=None for the machine's own memory",
            )
        self._streams: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, value: Any) -> Any:
        """A caller's array as a `DeviceArray`, if it lies on a GPU and is of a type that Triton has; else the value.

        Copies of it wait for the work that its library had given the GPU in this thread, on the current stream.
        """
        place = None if type(value) is DeviceArray else dlpack_device(value)
        if place is None or place[0] not in CUDA_KINDS:
            return value
        device = place[1] if place[0] == CUDA else self.device
        try:
            tensor = self._borrowed(without_history(value), device)
        except (BufferError, RuntimeError, TypeError, ValueError):  # the way through the machine's memory says why
            return value
        if not tensor.datatype or not tensor.is_dense:
            return value
        return DeviceArray(self, tensor.address, device, tensor.datatype, tensor.shape, tensor.capsule)

    def take_item(self, item: Any) -> Any:
        """The same for the inputs of a call: values by name, or a value alone."""
        if isinstance(item, Mapping):
            return {name: self.take(value) for name, value in item.items()}
        return self.take(item)

    def allocate(self, size: int) -> int:
        """The address of new memory."""
        with self._current(self.device):
            address: int = self._done(f"taking {size} bytes", self._runtime.cudaMalloc(size))
        return address

    def handle(self, address: int) -> bytes:
        """CUDA's handle of memory, which lets another process open it."""
        handle = self._done("sharing memory", self._runtime.cudaIpcGetMemHandle(address))
        return bytes((ctypes.c_char * _HANDLE_SIZE).from_address(handle.getPtr()))

    def copy(self, to: int, start: int, size: int, device: int) -> None:
        """Copy bytes between places in any memory; see `Copier`."""
        stream, kind = self._stream(device), self._runtime.cudaMemcpyKind.cudaMemcpyDefault
        if size:
            self._done("copying", self._runtime.cudaMemcpyAsync(to, start, size, kind, stream))
            self._done("copying", self._runtime.cudaStreamSynchronize(stream))

    def settle(self) -> None:
        """Wait for all work that this process has given the GPU."""
        with self._current(self.device):
            self._done("waiting", self._runtime.cudaDeviceSynchronize())

    def free(self, address: int) -> None:
        """Return memory, after all work on it."""
        self._runtime.cudaFree(address)

    def _borrowed(self, value: Any, device: int) -> Borrowed:
        """The tensor of another library, with its elements in a row if the library can make it so."""
        stream = self._stream(device)
        with self._current(device):  # torch exports only from its current GPU
            tensor = borrow(value, stream)
            return tensor if tensor.is_dense else borrow(dense_array(value), stream)

    def _stream(self, device: int) -> int:
        with self._lock:
            stream = self._streams.get(device)
            if stream is None:
                with self._current(device):
                    created = self._done("making a stream", self._runtime.cudaStreamCreateWithFlags(_NON_BLOCKING))
                stream = self._streams[device] = int(created)
                weakref.finalize(self, self._runtime.cudaStreamDestroy, created).atexit = False
        return stream

    @contextmanager
    def _current(self, device: int) -> Iterator[None]:
        """Make a GPU the thread's current one for a while."""
        before = self._done("reading the current GPU", self._runtime.cudaGetDevice())
        if before != device:
            self._done("choosing the GPU", self._runtime.cudaSetDevice(device))
        try:
            yield
        finally:
            if before != device and self._is_used(before):
                self._runtime.cudaSetDevice(before)

    def _is_used(self, device: int) -> bool:
        """Whether this process uses a GPU: choosing another would take hundreds of megabytes of its memory."""
        used: int = self._driver.cuDevicePrimaryCtxGetState(self._driver.cuDeviceGet(device)[1])[2]
        return bool(used)

    def _done(self, doing: str, answer: Any) -> Any:
        """The value of a CUDA call, which answers with a tuple of status and value."""
        status, *values = answer
        if int(status) != 0:
            name = self._runtime.cudaGetErrorString(status)[1]
            raise UsageError(
                f"CUDA shared memory: GPU {self.device}, {doing}",
                found=name.decode() if isinstance(name, bytes) else str(name),
                wanted="a GPU in this machine with room for the call's tensors",
                todo="use SharedMemory(device=None) for the machine's own memory",
            )
        return values[0] if values else None


class CudaMemory:
    """`size` bytes of a GPU's memory, held until `free`: CUDA forbids freeing memory that another process has open.

    Args:
        gpu: the GPU.
        lends: whether outputs are handed out as arrays on the GPU.
        size: bytes.

    Raises:
        UsageError: the GPU has no room for it.
    """

    def __init__(self, gpu: CudaDevice, lends: bool, size: int) -> None:
        self.size = size
        self._lends = lends
        self._gpu = gpu
        self._address = gpu.allocate(size)
        self._lent: weakref.ref[DeviceArray] | None = None

    def request(self, name: str) -> bytes:
        """The message that lets a server open it under `name`."""
        handle = self._gpu.handle(self._address)
        place = {"raw_handle": handle, "device_id": self._gpu.device, "byte_size": self.size}
        return message("CudaSharedMemoryRegister", name=name, **place)

    def hide(self) -> None:
        """Do nothing: the memory has a handle and no name."""

    def settle(self) -> None:
        """Wait for work that may still read outputs that were lent: an array may be gone before the GPU has read it."""
        if self._lends and self._lent is not None:
            self._gpu.settle()

    def write(self, offset: int, array: NDArray[Any] | DeviceArray, dtype: np.dtype[Any]) -> None:
        """Copy an array of any layout and byte order, as row-major values of `dtype`; a GPU's as it is."""
        if isinstance(array, DeviceArray):
            self._gpu.copy(self._address + offset, array.address, array.nbytes, array.device)
            return
        source = np.ascontiguousarray(array, dtype)
        self._gpu.copy(self._address + offset, source.ctypes.data, source.nbytes, self._gpu.device)

    def whole(self) -> DeviceArray:
        """All of it as a new array, which lives as long as a part of it."""
        whole = DeviceArray(self._gpu, self._address, self._gpu.device, "UINT8", (self.size,), None)
        self._lent = weakref.ref(whole)
        return whole

    def output(self, whole: DeviceArray, offset: int, datatype: str, shape: tuple[int, ...]) -> Any:
        """A tensor in it: lent, or as a read-only copy in the machine's memory."""
        array = whole.part(offset, datatype, shape)
        return array if self._lends else np.asarray(array)

    def free(self) -> None:
        """Give it back to the GPU, once no array is in it."""
        address, self._address = self._address, 0
        whole = self._lent() if self._lent is not None else None
        if address and whole is not None:
            weakref.finalize(whole, self._gpu.free, address).atexit = False
        elif address:
            self._gpu.free(address)
