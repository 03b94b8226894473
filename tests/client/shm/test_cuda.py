"""A GPU's memory, played by the machine's own: what is asked of CUDA, and what is said without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.client.shm.fake import vector
from tests.client.shm.fake_gpu import FakeRuntime, fake_gpus
from tritonkit.client.shm import RegionPool, SharedMemory
from tritonkit.client.shm.cuda import CudaDevice, CudaMemory
from tritonkit.client.wire.messages import schema
from tritonkit.errors import UsageError


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    """One GPU with a megabyte."""
    with fake_gpus(monkeypatch) as fake:
        yield fake


def test_arrays_go_and_come(runtime: FakeRuntime) -> None:
    """Arrays read back as written, whatever their layout, and the memory is freed once."""
    memory = CudaMemory(CudaDevice(0), False, 65536)
    array = vector(100).astype(">f4")[:, ::2]
    memory.write(64, array, np.dtype("<f4"))
    memory.write(1024, np.frombuffer(b"bytes", np.uint8), np.dtype(np.uint8))
    whole = np.asarray(memory.whole())
    assert whole[64 : 64 + 200].view("<f4").tolist() == array[0].tolist()
    assert whole[1024:1029].tobytes() == b"bytes"
    assert not whole.flags.writeable
    memory.hide()
    memory.free()
    memory.free()
    assert runtime.taken == {}


def test_the_server_gets_the_handle(runtime: FakeRuntime) -> None:
    """The message names the GPU, the size, and CUDA's 64 bytes as they are."""
    memory = CudaMemory(CudaDevice(0), False, 65536)
    request = schema().CudaSharedMemoryRegisterRequest.FromString(memory.request("mine"))
    assert (request.name, request.device_id, request.byte_size) == ("mine", 0, 65536)
    (block,) = runtime.taken.values()
    assert request.raw_handle == os.fsencode(block.path).ljust(64, bytes(1))


def test_a_full_gpu_is_told(runtime: FakeRuntime) -> None:
    """CUDA's own words, what was wanted, and the way out."""
    with pytest.raises(UsageError, match=r"taking 2097152 bytes: out of memory[\s\S]*device=None"):
        CudaMemory(CudaDevice(0), False, 2 * 2**20)


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
