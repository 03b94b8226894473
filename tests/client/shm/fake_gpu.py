"""A GPU that is not there, for the client: its memory is files, which the server of tests/fakecuda.py can open too.

As with that server's GPU, only copies of the runtime reach the memory: the addresses that CUDA's users get can be
neither read nor written. A stream does its work when somebody waits for it, the latest moment that CUDA permits.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tritonkit.client import dlpack

__all__ = ["CudaTensor", "FakeRuntime", "as_torch", "fake_gpus"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_NO_ACCESS = 0  # PROT_NONE


@dataclass
class Block:
    """Memory of one GPU."""

    device: int
    path: Path
    view: Any
    """The bytes, for the runtime's copies."""

    @property
    def view_address(self) -> int:
        """The place of the bytes."""
        return ctypes.addressof(self.view)


class FakeRuntime:
    """`cuda.bindings.runtime`: each call gives a status and a value.

    Args:
        folder: gets a file for each piece of memory; short, because a handle has its path.
        gpus: the number of GPUs.
        room: bytes of each piece of memory, at most.
    """

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)  # noqa: N815

    def __init__(self, folder: Path, gpus: int = 1, room: int = 2**20) -> None:
        self.folder = folder
        self.gpus = gpus
        self.room = room
        self.taken: dict[int, Block] = {}
        self.streams: set[int] = set()
        self.settled = 0
        """Calls that waited for all work of a GPU."""
        self.used: set[int] = set()
        """GPUs that this process uses."""
        self.current = threading.local()
        self.work: dict[int, list[Callable[[], object]]] = defaultdict(list)
        """Work that streams have not done."""
        self._lock = threading.RLock()
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cuda"):
            return getattr(self, f"_{name[4:].lower()}")
        raise AttributeError(name)

    def enqueue(self, stream: int, work: Callable[[], object]) -> None:
        """Give a stream work, for the moment at which somebody waits for it."""
        with self._lock:
            self.work[stream].append(work)

    def place(self, address: int) -> int:
        """The place of a byte for the processor, by its address."""
        for begin, block in list(self.taken.items()):
            if begin <= address < begin + len(block.view):
                return block.view_address + address - begin
        return address

    def _getdevicecount(self) -> tuple[int, int]:
        return (0, self.gpus) if self.gpus else (100, 0)

    def _geterrorstring(self, status: int) -> tuple[int, bytes]:
        return 0, {
            1: b"invalid argument",
            2: b"out of memory",
            100: b"no CUDA-capable device is detected",
            101: b"invalid device ordinal",
        }[status]

    def _getdevice(self) -> tuple[int, int]:
        return 0, getattr(self.current, "device", 0)

    def _setdevice(self, device: int) -> tuple[int]:
        if device >= self.gpus:
            return (101,)
        self.current.device = device
        self.used.add(device)
        return (0,)

    def _malloc(self, size: int) -> tuple[int, int]:
        if size > self.room:
            return 2, 0
        with self._lock:
            self._count += 1
            path = self.folder / str(self._count)
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        path.write_bytes(bytes(pages))
        descriptor = os.open(path, os.O_RDWR)
        address = _LIBC.mmap(None, pages, _NO_ACCESS, mmap.MAP_SHARED, descriptor, 0)
        view = (ctypes.c_char * pages).from_buffer(mmap.mmap(descriptor, pages))
        os.close(descriptor)
        self.taken[address] = Block(self._getdevice()[1], path, view)
        return 0, address

    def _free(self, address: int) -> tuple[int]:
        block = self.taken.pop(address)
        _LIBC.munmap(address, len(block.view))
        return (0,)

    def _streamcreatewithflags(self, flags: int) -> tuple[int, int]:
        assert flags == 1
        self.streams.add(stream := 1000 * self._getdevice()[1] + 100 + len(self.streams))
        return 0, stream

    def _streamdestroy(self, stream: int) -> tuple[int]:
        self.streams.remove(stream)
        return (0,)

    def _memcpyasync(self, to: int, start: int, size: int, kind: int, stream: int) -> tuple[int]:
        assert stream in self.streams
        assert kind == 4
        if self.place(start + size - 1) - self.place(start) != size - 1:
            return (1,)
        self.enqueue(stream, lambda: ctypes.memmove(self.place(to), self.place(start), size))
        return (0,)

    def _streamsynchronize(self, stream: int) -> tuple[int]:
        with self._lock:
            for work in self.work.pop(stream, []):
                work()
        return (0,)

    def _devicesynchronize(self) -> tuple[int]:
        self.settled += 1
        for stream in list(self.work):
            self._streamsynchronize(stream)
        return (0,)

    def _ipcgetmemhandle(self, address: int) -> tuple[int, Any]:
        handle = ctypes.create_string_buffer(os.fsencode(self.taken[address].path), 64)
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(handle), kept=handle)


@contextmanager
def fake_gpus(monkeypatch: Any) -> Iterator[FakeRuntime]:
    """Let `import cuda.bindings` find the fake, with one GPU of a megabyte."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-", dir="/dev/shm"))
    fake = FakeRuntime(folder)

    def state(device: int) -> tuple[int, int, int]:
        return 0, 0, int(device in fake.used)

    driver = SimpleNamespace(cuDeviceGet=lambda device: (0, device), cuDevicePrimaryCtxGetState=state)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", fake)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    try:
        yield fake
    finally:
        shutil.rmtree(folder)


class CudaTensor:
    """A tensor of a library on a GPU, as far as DLPack shows it; torch makes its capsules.

    Its values are computed late: a stream that does not wait for its library's work reads zeros.

    Args:
        runtime: the GPUs.
        values: torch's tensor or numpy's array, with any strides.
        device: the number of the GPU.
        kind: DLPack's kind of memory.
        newest: the newest version of DLPack that its library knows, None for one before 1.0.
    """

    def __init__(
        self,
        runtime: FakeRuntime,
        values: Any,
        device: int = 0,
        kind: int = dlpack.CUDA,
        newest: tuple[int, int] | None = (1, 0),
    ) -> None:
        import torch

        self._runtime, self._newest, self._kind, self._device = runtime, newest, kind, device
        self._values = torch.as_tensor(values)
        whole = self._values.as_strided((self._extent(),), (1,)) if self._values.numel() else self._values.reshape(0)
        with_device = getattr(runtime.current, "device", 0)
        runtime.current.device = device
        _, self._address = runtime.cudaMalloc(max(whole.numel() * whole.element_size(), 1))
        runtime.current.device = with_device
        raw = np.frombuffer(runtime.taken[self._address].view, np.uint8)
        raw = raw[: whole.numel() * whole.element_size()]
        self._memory = torch.from_numpy(raw).view(whole.dtype)
        self._late = whole.clone()
        self.streams: list[Any] = []
        """The streams that were to wait for its library."""
        self.threads: set[int] = set()
        """The threads that asked it for a capsule: each has a current stream of its own."""
        self.host_copies = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return tuple(self._values.shape)

    def contiguous(self) -> CudaTensor:
        """A copy with its elements in a row."""
        return CudaTensor(self._runtime, self._values.contiguous(), self._device, self._kind, self._newest)

    def get(self) -> Any:
        """The values in the machine's memory, as CuPy gives them; bfloat16 as ml_dtypes has it."""
        import torch

        self.host_copies += 1
        if self._values.dtype is torch.bfloat16:
            import ml_dtypes

            return self._values.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return self._values.numpy()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Its kind of memory, and the number of the GPU."""
        return self._kind, self._device

    def __dlpack__(self, *, stream: Any = None, **newer: Any) -> Any:
        """A capsule, from which a stream may read once it has done its work."""
        assert self._runtime.cudaGetDevice() == (0, self._device), "torch refuses this"
        if newer and self._newest is None:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        self.streams.append(stream)
        self.threads.add(threading.get_ident())
        self._runtime.enqueue(stream, lambda: self._memory.copy_(self._late))
        strided = self._memory.as_strided(self._values.shape, self._values.stride())
        capsule = strided.__dlpack__(max_version=self._newest)
        tensor = dlpack._tensor(capsule)
        tensor.device = dlpack._Device(self._kind, self._device)
        if self._values.numel():
            tensor.data = self._address
        return capsule

    def _extent(self) -> int:
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self._values.stride(), strict=True))


def as_torch(runtime: FakeRuntime, array: Any, **asked: Any) -> Any:
    """The tensor that `torch.from_dlpack` makes on a GPU: torch takes the same capsule, which names the CPU here."""
    import torch

    capsule = array.__dlpack__(stream=1, **asked)
    tensor = dlpack._tensor(capsule)
    assert (tensor.device.kind, tensor.device.number) == array.__dlpack_device__()
    tensor.device = dlpack._Device(1, 0)
    tensor.data = runtime.place(tensor.data)
    return torch.from_dlpack(capsule)
