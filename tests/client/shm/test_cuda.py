"""A GPU's memory, played by the machine's own: what is asked of CUDA, and what is said without it."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.client.shm.fake import vector
from tritonkit.client.shm import RegionPool, SharedMemory
from tritonkit.client.shm.cuda import cuda_maker
from tritonkit.client.wire.messages import schema
from tritonkit.errors import UsageError


class FakeRuntime:
    """`cuda.bindings.runtime`: each call gives a status and a value."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)  # noqa: N815

    def __init__(self, gpus: int = 1, room: int = 2**20) -> None:
        self.gpus = gpus
        self.room = room
        self.taken: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cuda"):
            return getattr(self, f"_{name[4:].lower()}")
        raise AttributeError(name)

    def _getdevicecount(self) -> tuple[int, int]:
        return (0, self.gpus) if self.gpus else (100, 0)

    def _geterrorstring(self, status: int) -> tuple[int, bytes]:
        return 0, {2: b"out of memory", 100: b"no CUDA-capable device is detected"}[status]

    def _setdevice(self, device: int) -> tuple[int]:
        assert device < self.gpus
        return (0,)

    def _malloc(self, size: int) -> tuple[int, int]:
        if size > self.room:
            return 2, 0
        memory = ctypes.create_string_buffer(size)
        self.taken[ctypes.addressof(memory)] = memory
        return 0, ctypes.addressof(memory)

    def _free(self, address: int) -> tuple[int]:
        del self.taken[address]
        return (0,)

    def _memcpy(self, to: int, start: int, size: int, kind: int) -> tuple[int]:
        ctypes.memmove(to, start, size)
        return (0,)

    def _ipcgetmemhandle(self, address: int) -> tuple[int, Any]:
        handle = ctypes.create_string_buffer(address.to_bytes(8, "little") + bytes(56), 64)
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(handle), kept=handle)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """One GPU with a megabyte."""
    fake = FakeRuntime()
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", fake)
    return fake


def test_arrays_go_and_come(runtime: FakeRuntime) -> None:
    """Arrays read back as written, whatever their layout, and the memory is freed once."""
    memory = cuda_maker(0)(65536)
    array = vector(100).astype(">f4")[:, ::2]
    memory.write(64, array, np.dtype("<f4"))
    memory.write(1024, np.frombuffer(b"bytes", np.uint8), np.dtype(np.uint8))
    whole = memory.whole()
    assert whole[64 : 64 + 200].view("<f4").tolist() == array[0].tolist()
    assert whole[1024:1029].tobytes() == b"bytes"
    assert not whole.flags.writeable
    memory.hide()
    memory.free()
    memory.free()
    assert runtime.taken == {}


def test_the_server_gets_the_handle(runtime: FakeRuntime) -> None:
    """The message names the GPU, the size, and CUDA's 64 bytes as they are."""
    memory = cuda_maker(0)(65536)
    request = schema().CudaSharedMemoryRegisterRequest.FromString(memory.request("mine"))
    assert (request.name, request.device_id, request.byte_size) == ("mine", 0, 65536)
    (address,) = runtime.taken
    assert request.raw_handle == address.to_bytes(8, "little") + bytes(56)


def test_a_full_gpu_is_told(runtime: FakeRuntime) -> None:
    """CUDA's own words, what was wanted, and the way out."""
    with pytest.raises(UsageError, match=r"taking 2097152 bytes: out of memory[\s\S]*device=None"):
        cuda_maker(0)(2 * 2**20)


def test_a_gpu_that_is_not_there_is_told(runtime: FakeRuntime) -> None:
    """Another number than there are GPUs, or none at all, is refused when the client is made."""
    with pytest.raises(UsageError, match="1 GPUs"):
        RegionPool(SharedMemory(device=1))
    runtime.gpus = 0
    with pytest.raises(UsageError, match="no CUDA-capable device"):
        RegionPool(SharedMemory(device=0))


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cuda-python the message says what to install."""
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(UsageError, match=r"pip install 'tritonclient\[cuda\]'"):
        RegionPool(SharedMemory(device=0))
