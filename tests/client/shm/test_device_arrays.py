"""Tensors that lie on a GPU: taken from torch and its like by DLPack, and given to them, without a copy to the host."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.client.shm.conftest import SIZE
from tests.client.shm.fake import AsyncTriton, FakeTriton, vector
from tests.client.shm.fake_gpu import CudaTensor, FakeRuntime, as_torch, fake_gpus
from tests.parts import PROJECT
from tests.waiting import eventually
from tritonkit.client import Adaptive, AsyncClient, Cache, Client, dlpack
from tritonkit.client.shm import DeviceArray, SharedMemory
from tritonkit.errors import InvalidInput, ServerUnavailable, UsageError
from tritonkit.testing import FakeModel, MemoryTransport

torch = pytest.importorskip("torch")

ON_GPU = SharedMemory(smallest=1, device=0)
LENT = SharedMemory(device=0, device_outputs=True)
TYPES = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP32": torch.float32,
    "FP64": torch.float64,
}


def _one_answer(given: Any) -> Iterator[Any]:
    yield {"y": given["x"]}


class Triton(FakeTriton):
    """The server that copies x to y, with the model's description."""

    def __init__(self, datatype: str = "FP32") -> None:
        super().__init__()
        self.placed: list[bool] = []
        tensors = {"x": (datatype, [SIZE])}, {"y": (datatype, [SIZE])}
        copy = FakeModel(*tensors, lambda given: {"y": given["x"]}, max_batch_size=8, idempotent=True)
        many = FakeModel(*tensors, _one_answer)
        self.memory = MemoryTransport({"copy": copy, "many": many})

    def send(self, method: str, body: Any, timeout_s: float, headers: Any = ()) -> memoryview:
        """Answer one message."""
        if method in ("ModelConfig", "ModelMetadata"):
            return self.memory.send(method, body, timeout_s, headers)  # type: ignore[arg-type]
        return super().send(method, body, timeout_s, headers)

    def stream(self, headers: Any = (), timeout_s: float | None = None) -> Any:
        """The messages of a stream."""
        return self.memory.stream(headers, timeout_s)

    def close(self) -> None:
        """End nothing: a test has one server."""

    def _ModelInfer(self, request: Any) -> Any:  # noqa: N802
        self.placed.append("shared_memory_region" in request.inputs[0].parameters)
        return super()._ModelInfer(request)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    """Two GPUs."""
    with fake_gpus(monkeypatch) as fake:
        fake.gpus = 2
        yield fake


@pytest.fixture
def triton() -> Triton:
    """A server on this machine."""
    return Triton()


@pytest.fixture
def model(runtime: FakeRuntime, triton: Triton) -> Iterator[Any]:
    """The model of a client that shares the GPU's memory."""
    with Client(transport=triton, shared_memory=ON_GPU) as client:
        yield client.model("copy")


@pytest.fixture
def lent(runtime: FakeRuntime, triton: Triton) -> Iterator[Any]:
    """The same, whose outputs stay on the GPU."""
    with Client(transport=triton, shared_memory=LENT) as client:
        yield client.model("copy")


class OnlyDlpack:
    """An array that numpy reads by DLPack alone; `copies` says whether its library can copy it to the host."""

    def __init__(self, tensor: Any, place: tuple[int, int] | None = None, copies: bool = False) -> None:
        self._tensor = tensor
        self._place = place or tensor.__dlpack_device__()
        self._copies = copies

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place

    def __dlpack__(self, **asked: Any) -> Any:
        if asked.get("dl_device") and not self._copies:
            raise BufferError("only where it lies")
        return self._tensor.__dlpack__(**asked)


# --- inputs ---


@pytest.mark.parametrize("newest", [None, (1, 0)])
@pytest.mark.parametrize("datatype", TYPES)
def test_an_input_goes_from_gpu_to_gpu(runtime: FakeRuntime, datatype: str, newest: tuple[int, int] | None) -> None:
    """Tensors of each type, in capsules of old and new, arrive as they are, and never in the machine's memory."""
    triton = Triton(datatype)
    x = CudaTensor(runtime, torch.arange(2 * SIZE).reshape(2, SIZE).to(TYPES[datatype]), newest=newest)
    with Client(transport=triton, shared_memory=ON_GPU) as client:
        y = client.model("copy").predict(x=x)["y"]
    assert y.tolist() == x.get().tolist()
    assert (triton.placed, x.host_copies) == ([True], 1)  # the one copy is this test's own
    (stream,) = set(x.streams)
    assert stream > 2


def test_one_item_needs_no_batch_axis(runtime: FakeRuntime, model: Any) -> None:
    """A tensor of an item's shape is a batch of one, as an array is."""
    assert model.predict(x=CudaTensor(runtime, vector(SIZE)[0]))["y"].tolist() == vector(SIZE).tolist()


def test_a_tensor_of_another_gpu_is_copied_over(runtime: FakeRuntime, model: Any) -> None:
    """Its own GPU's stream waits for its library, and the thread's current GPU stays what it was."""
    x = CudaTensor(runtime, vector(SIZE), device=1)
    runtime.cudaSetDevice(1)
    assert model.predict(x=x)["y"].tolist() == vector(SIZE).tolist()
    assert runtime.cudaGetDevice() == (0, 1)
    assert all(stream >= 1000 for stream in x.streams)
    assert x.host_copies == 0


def test_the_current_gpu_is_not_put_to_use(runtime: FakeRuntime, triton: Triton) -> None:
    """A process that uses GPU 1 alone does not take memory of GPU 0 by making it its current one again."""
    with Client(transport=triton, shared_memory=SharedMemory(smallest=1, device=1)) as client:
        client.model("copy").predict(x=vector(SIZE))
    assert runtime.used == {1}


def test_managed_memory_is_copied_on_the_gpu(runtime: FakeRuntime, model: Any) -> None:
    """Memory that GPU and processor share is taken as a GPU's."""
    x = CudaTensor(runtime, vector(SIZE), kind=13)
    assert model.predict(x=x)["y"].tolist() == vector(SIZE).tolist()
    assert x.host_copies == 0


def test_strides_are_removed_by_the_library(runtime: FakeRuntime, model: Any) -> None:
    """A transposed tensor is put in a row by its library, on the GPU."""
    values = torch.arange(2.0 * SIZE).reshape(SIZE, 2).T
    x = CudaTensor(runtime, values)
    assert model.predict(x=x)["y"].tolist() == values.tolist()
    assert x.host_copies == 0


def test_a_library_that_cannot_remove_strides_copies_to_the_host(
    runtime: FakeRuntime, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the values go through the machine's memory."""
    monkeypatch.setattr(CudaTensor, "contiguous", None)
    values = torch.arange(2.0 * SIZE).reshape(SIZE, 2).T
    x = CudaTensor(runtime, values)
    assert model.predict(x=x)["y"].tolist() == values.tolist()
    assert x.host_copies == 1


def test_types_are_checked_as_for_arrays(runtime: FakeRuntime, triton: Triton) -> None:
    """A type that loses nothing is cast, through the host; the rest is refused in the same words."""
    with Client(transport=Triton("INT64"), shared_memory=ON_GPU) as client:
        small = CudaTensor(runtime, torch.arange(SIZE, dtype=torch.int32))
        assert client.model("copy").predict(x=small)["y"][0].tolist() == list(range(SIZE))
    with Client(transport=triton, shared_memory=ON_GPU) as client:
        model = client.model("copy")
        for values in (np.zeros(SIZE), vector(SIZE + 1), np.zeros((9, SIZE), np.float32), np.zeros((0, SIZE), "f4")):
            with pytest.raises(InvalidInput) as of_array:
                model.predict(x=values)
            with pytest.raises(InvalidInput) as of_tensor:
                model.predict(x=CudaTensor(runtime, values))
            assert str(of_tensor.value) == str(of_array.value)
    assert triton.placed == []


def test_without_shared_memory_a_tensor_is_copied_once(runtime: FakeRuntime, triton: Triton) -> None:
    """A client without a GPU's memory sends the bytes in the message."""
    x = CudaTensor(runtime, vector(SIZE)[0])
    with Client(transport=triton) as client:
        assert client.model("copy").predict(x=x)["y"].tolist() == vector(SIZE).tolist()
        assert client.model("copy").predict(x=[x])["y"].tolist() == vector(SIZE).tolist()
    assert (triton.placed, x.host_copies) == ([False, False], 2)


def test_a_server_that_cannot_open_the_memory_gets_bytes(runtime: FakeRuntime, triton: Triton, model: Any) -> None:
    """A refused region and a call below the smallest size: bytes go, and neither needs the tensor's library."""
    triton.local = False
    x = CudaTensor(runtime, vector(SIZE))
    assert model.predict(x=x)["y"].tolist() == vector(SIZE).tolist()
    with Client(transport=triton, shared_memory=SharedMemory(device=0)) as client:
        assert client.model("copy").predict(x=x)["y"].tolist() == vector(SIZE).tolist()
    assert (triton.placed, x.host_copies) == ([False, False], 0)


@pytest.mark.parametrize("place", [(10, 0), (2, 0)])
def test_memory_that_nobody_copies_is_refused(triton: Triton, place: tuple[int, int]) -> None:
    """Another maker's GPU, or a library that gives its arrays to no processor."""
    with (
        Client(transport=triton) as client,
        pytest.raises(InvalidInput, match=r"x[\s\S]*OnlyDlpack in the memory of device 0[\s\S]*numpy array"),
    ):
        client.model("copy").predict(x=OnlyDlpack(torch.zeros(SIZE), place))


def test_a_library_may_copy_by_dlpack(triton: Triton) -> None:
    """One that numpy cannot read otherwise copies its array to the host when DLPack asks it to."""
    with Client(transport=triton) as client:
        x = OnlyDlpack(torch.from_numpy(vector(SIZE)), (2, 0), copies=True)
        assert client.model("copy").predict(x=x)["y"].tolist() == vector(SIZE).tolist()


@pytest.mark.parametrize("place", [(1, 0), (3, 0)])
@pytest.mark.parametrize("datatype", TYPES)
def test_dlpack_on_the_host_is_read_in_place(datatype: str, place: tuple[int, int]) -> None:
    """Pinned memory is the machine's own too; bfloat16 is read as float32."""
    triton = Triton(datatype)
    values = torch.arange(2 * SIZE).reshape(2, SIZE).to(TYPES[datatype])
    with Client(transport=triton) as client:
        reply = client.model("copy").predict(x=OnlyDlpack(values, place))
        strided = client.model("copy").predict(x=OnlyDlpack(values.T.contiguous().T, place))
    assert reply["y"].tolist() == values.tolist()
    assert strided["y"].tolist() == values.tolist()


def test_read_only_and_empty_arrays_are_read(runtime: FakeRuntime) -> None:
    """numpy's own, through DLPack: a view that may not be written to, and one without elements."""
    from tritonkit.client.arrays import read_array

    array = vector(SIZE)
    array.flags.writeable = False
    view, name = read_array(OnlyDlpack(array), "here")
    assert name == "float32"
    assert np.shares_memory(view, array)
    for values in (torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bfloat16)):
        for empty in (OnlyDlpack(values), CudaTensor(runtime, values)):
            assert read_array(empty, "here")[0].shape == (0, 3)


def test_a_tensor_is_taken_in_the_callers_thread(runtime: FakeRuntime, model: Any) -> None:
    """Its library orders the copy after the caller's stream, also where another thread makes the call."""
    x = CudaTensor(runtime, vector(SIZE))
    assert model.submit(x=x).result()["y"].tolist() == vector(SIZE).tolist()
    for item in (x, {"x": x}):
        assert [reply["y"].tolist() for reply in model.predict_many([item])] == [vector(SIZE).tolist()]
    assert x.threads == {threading.get_ident()}


def test_a_gpu_that_is_not_there_is_told(runtime: FakeRuntime, model: Any) -> None:
    """A tensor of a GPU that this process no longer sees: CUDA's own words, and the call is not sent."""
    x = CudaTensor(runtime, vector(SIZE), device=1)
    runtime.gpus = 1
    with pytest.raises(UsageError, match="choosing the GPU: invalid device ordinal"):
        model.predict(x=x)


def test_memory_that_is_gone_is_told(runtime: FakeRuntime, triton: Triton, model: Any) -> None:
    """A copy that CUDA refuses is an error of the call, and the next one is made."""
    x = CudaTensor(runtime, vector(SIZE))
    with pytest.raises(UsageError, match="copying: invalid argument"):
        model.predict(x=_Longer(x))
    assert model.predict(x=x)["y"].tolist() == vector(SIZE).tolist()
    assert triton.placed == [True]


class _Longer:
    """A tensor whose library says that it has more rows than its memory."""

    def __init__(self, x: CudaTensor) -> None:
        self._x = x
        self.__dlpack_device__ = x.__dlpack_device__

    def __dlpack__(self, **asked: Any) -> Any:
        capsule = self._x.__dlpack__(**asked)
        dlpack._tensor(capsule).shape[0] = 8
        return capsule


def test_a_tensor_nowhere_is_refused(runtime: FakeRuntime, model: Any) -> None:
    """torch's own device without memory is none that DLPack knows."""
    with pytest.raises(InvalidInput, match="memory of meta"):
        model.predict(x=torch.zeros(SIZE, device="meta"))


# --- outputs ---


def test_an_output_stays_on_the_gpu(runtime: FakeRuntime, triton: Triton, lent: Any) -> None:
    """torch takes it without a copy; numpy copies it, read-only; its shape and type are known."""
    y: Any = lent.predict(x=CudaTensor(runtime, vector(SIZE)))["y"]
    assert isinstance(y, DeviceArray)
    assert (y.shape, y.datatype, y.dtype, y.device, len(y)) == ((1, SIZE), "FP32", np.float32, 0, 1)
    taken = as_torch(runtime, y)
    assert taken.tolist() == vector(SIZE).tolist()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(y)[0, 0] = 1
    taken[0, 0] = 7
    assert np.asarray(y)[0, 0] == 7
    assert np.array(y, np.float64)[0, 1] == 1.0


@pytest.mark.parametrize("asked", [{}, {"max_version": (1, 0)}, {"max_version": (2, 1)}, {"max_version": (0, 8)}])
@pytest.mark.parametrize("datatype", TYPES)
def test_an_output_has_its_type(runtime: FakeRuntime, datatype: str, asked: dict[str, Any]) -> None:
    """Outputs of each type, for libraries before DLPack 1.0 and after."""
    values = torch.arange(2 * SIZE).reshape(2, SIZE).to(TYPES[datatype])
    with Client(transport=Triton(datatype), shared_memory=LENT) as client:
        y: Any = client.model("copy").predict(x=CudaTensor(runtime, values))["y"]
    taken = as_torch(runtime, y, **asked)
    assert taken.dtype is TYPES[datatype]
    assert taken.tolist() == values.tolist()
    assert ("versioned" in repr(y.__dlpack__(**asked))) == (asked.get("max_version", (0,))[0] >= 1)


def test_an_output_goes_into_the_next_call(runtime: FakeRuntime, triton: Triton, lent: Any) -> None:
    """An output is an input of any call, without a copy to the host."""
    y: Any = lent.predict(x=CudaTensor(runtime, vector(SIZE)))["y"]
    assert np.asarray(lent.predict(x=y)["y"]).tolist() == vector(SIZE).tolist()
    assert triton.placed == [True, True]


def test_an_output_can_be_asked_onto_the_host(runtime: FakeRuntime, lent: Any) -> None:
    """DLPack's own arguments: a copy for the processor; another GPU, or a copy on this one, is refused."""
    y: Any = lent.predict(x=vector(SIZE))["y"]
    assert np.from_dlpack(y, device="cpu").tolist() == vector(SIZE).tolist()
    for asked in ({"dl_device": (2, 1)}, {"copy": True}, {"dl_device": (1, 0), "copy": False}):
        with pytest.raises(BufferError, match="DeviceArray"):
            y.__dlpack__(**asked)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(y, copy=False)
    with pytest.raises(TypeError, match="from_dlpack"):
        y[0]


def test_a_copy_on_the_host_belongs_to_its_caller(runtime: FakeRuntime, lent: Any) -> None:
    """`numpy.array` gives one that may be written, which libraries older than DLPack 1.0 demand too."""
    y = lent.predict(x=vector(SIZE))["y"]
    copy = np.array(y)
    copy[:] = 7
    assert np.asarray(y).tolist() == vector(SIZE).tolist()
    assert not np.asarray(y).flags.writeable
    assert torch.from_dlpack(y.__dlpack__(dl_device=(1, 0))).tolist() == vector(SIZE).tolist()


def test_a_class_is_not_an_array(runtime: FakeRuntime, model: Any) -> None:
    """A class in place of its instance is refused as any other wrong value."""
    with pytest.raises(InvalidInput, match="input x"):
        model.predict(x=torch.Tensor)
    with pytest.raises(InvalidInput, match="input x"):
        model.predict(x=OnlyDlpack)


def test_small_outputs_are_lent_too(runtime: FakeRuntime, triton: Triton) -> None:
    """`smallest` counts for calls whose outputs are numpy's."""
    with Client(transport=triton, shared_memory=LENT) as client:
        assert isinstance(client.model("copy").predict(x=vector(SIZE))["y"], DeviceArray)


def _kept(runtime: FakeRuntime, y: Any, keep: str) -> Any:
    if keep == "tensor":
        return as_torch(runtime, y)[0, 5:]
    return {"array": y, "slice": y[0:1], "capsule": y.__dlpack__(stream=1)}[keep]


@pytest.mark.parametrize("keep", ["array", "slice", "capsule", "tensor"])
def test_memory_is_used_again_when_nobody_has_it(runtime: FakeRuntime, triton: Triton, lent: Any, keep: str) -> None:
    """An array, a slice, a capsule that nobody took and a tensor made of it: each keeps the region."""
    y: Any = lent.predict(x=vector(SIZE))["y"]
    kept = _kept(runtime, y, keep)
    del y
    for number in range(3):
        assert np.asarray(lent.predict(x=vector(SIZE, number))["y"])[0, 0] == number
    assert len(triton.regions) == 2
    if keep == "tensor":
        assert kept[0] == 5
    del kept
    lent.predict(x=vector(SIZE))
    assert len(triton.regions) == 2


def test_the_gpu_is_done_with_lent_memory_before_it_is_written(runtime: FakeRuntime, lent: Any, model: Any) -> None:
    """A tensor may be gone while work that reads it waits; numpy's callers wait for nothing."""
    lent.predict(x=vector(SIZE))
    assert runtime.settled == 0
    lent.predict(x=vector(SIZE))
    assert runtime.settled == 1
    for _ in range(3):
        model.predict(x=vector(SIZE))
    assert runtime.settled == 1


def test_arrays_outlive_their_client(runtime: FakeRuntime, triton: Triton) -> None:
    """A closed client lets the server forget the region; the GPU gets it back with the last tensor, once."""
    with Client(transport=triton, shared_memory=LENT) as client:
        tensor = as_torch(runtime, client.model("copy").predict(x=vector(SIZE, 3))["y"])
        client.model("copy").predict(x=vector(SIZE))
    assert triton.regions == {}
    assert tensor[0, 0] == 3
    assert len(runtime.taken) == 1
    del tensor
    assert runtime.taken == {}
    del client
    gc.collect()
    assert runtime.streams == set()


def test_a_restarted_server_takes_nothing_away(runtime: FakeRuntime, triton: Triton, lent: Any) -> None:
    """The next call gets another region; the earlier output stays what it was."""
    y: Any = lent.predict(x=vector(SIZE, 3))["y"]
    triton.restart()
    assert np.asarray(lent.predict(x=vector(SIZE, 4))["y"])[0, 0] == 4
    assert np.asarray(y)[0, 0] == 3


_ENDING = """
import sys
import pytest
from tests.client.shm.fake import vector
from tests.client.shm.fake_gpu import as_torch, fake_gpus
from tests.client.shm.test_device_arrays import LENT, Triton
from tritonkit.client import Client

gpus = fake_gpus(pytest.MonkeyPatch())
fake = gpus.__enter__()
client = Client(transport=Triton(), shared_memory=LENT)
array = client.model("copy").predict(x=vector(1000))["y"]
tensor = as_torch(fake, array)
capsule = array.__dlpack__(stream=1)
sys.kept_by_the_interpreter = [array, tensor, capsule]
print(float(tensor[0, 5]), fake.folder)
"""


def test_a_process_may_end_with_lent_memory() -> None:
    """Tensors, capsules and arrays that the interpreter collects last do no harm."""
    done = subprocess.run([sys.executable, "-c", _ENDING], cwd=PROJECT, capture_output=True, text=True, timeout=240)
    value, _, folder = done.stdout.strip().partition(" ")
    shutil.rmtree(folder, ignore_errors=True)  # the process may have removed it
    assert (done.returncode, value, done.stderr) == (0, "5.0", "")


# --- with everything else ---


def test_a_tensor_lives_until_the_last_attempt(runtime: FakeRuntime, triton: Triton, model: Any) -> None:
    """Each attempt copies it into another region; its library gets it back after the call."""
    tries: list[int] = []

    def lost(request: Any) -> Any:
        tries.append(len(runtime.taken))
        if len(tries) < 3:
            raise ServerUnavailable("here:8001", found="lost")
        return triton.answer("ModelInfer", request)

    triton.answers["ModelInfer"] = lost
    x = CudaTensor(runtime, vector(SIZE))
    reply = model.predict(x=x)
    assert reply["y"].tolist() == vector(SIZE).tolist()
    assert (reply.attempts, x.host_copies, len(x.streams)) == (3, 0, 1)
    assert len(tries) == 3


def _users(x: CudaTensor) -> int:
    """The number of tensors and capsules of its memory."""
    users: int = torch._C._storage_Use_Count(x._memory.untyped_storage()._cdata)
    return users


def test_the_library_gets_its_memory_back_once(runtime: FakeRuntime, model: Any) -> None:
    """After a call, and after one that was refused, nothing of a tensor's capsule is left."""
    x = CudaTensor(runtime, vector(SIZE))
    before = _users(x)
    model.predict(x=x)
    with pytest.raises(InvalidInput):
        model.predict(x=x, inputs={"other": x})
    assert _users(x) == before


def test_a_call_with_a_tensor_is_not_cached(runtime: FakeRuntime, triton: Triton) -> None:
    """Its bytes would have to come to the host; calls with arrays are cached, as numpy's arrays."""
    with Client(transport=triton, shared_memory=LENT, cache=Cache()) as client:
        model = client.model("copy")
        for _ in range(2):
            assert isinstance(model.predict(x=CudaTensor(runtime, vector(SIZE)))["y"], DeviceArray)
        replies = [model.predict(x=vector(SIZE)) for _ in range(2)]
    assert [reply.origin for reply in replies] == ["server", "l1"]
    assert all(isinstance(reply["y"], np.ndarray) for reply in replies)
    assert len(triton.placed) == 3


def test_a_call_with_a_tensor_is_not_joined(runtime: FakeRuntime, triton: Triton) -> None:
    """It goes alone; joined calls with arrays share one output, of which each has its slice."""
    settings = Adaptive(independent_items=True, max_wait_ms=200.0)
    with Client(transport=triton, shared_memory=LENT, batching=settings) as client:
        model = client.model("copy")
        alone = model.predict(x=CudaTensor(runtime, vector(SIZE)))
        assert alone.batch_size == 1
        calls = [model.submit(x=vector(SIZE, number)) for number in range(4)]
        replies = [call.result() for call in calls]
        assert [np.asarray(reply["y"])[0, 0] for reply in replies] == [0, 1, 2, 3]
        assert all(isinstance(reply["y"], DeviceArray) for reply in replies)
        del alone, calls
        first = replies[0]["y"]
        replies.clear()
        model.predict(x=vector(SIZE, 9))
        assert np.asarray(first)[0, 0] == 0


def test_the_check_of_a_model_reads_lent_outputs(runtime: FakeRuntime, triton: Triton) -> None:
    """Items are proven independent with outputs that lie on the GPU."""
    with Client(transport=triton, shared_memory=LENT, batching=Adaptive()) as client:
        model = client.model("copy")
        for number in range(6):
            model.predict(x=vector(SIZE, number))
        assert model.joining.state == "independent"


def test_sequences_and_streams_send_bytes(runtime: FakeRuntime, triton: Triton, model: Any) -> None:
    """Neither uses shared memory: the tensor is copied to the host."""
    x = CudaTensor(runtime, vector(SIZE))
    with model.sequence() as sequence:
        assert sequence.predict(x=x, last=True)["y"].tolist() == vector(SIZE).tolist()
    assert triton.placed == [False]
    with Client(transport=triton, shared_memory=ON_GPU) as client, client.model("many").stream(x=x) as stream:
        assert [reply["y"].tolist() for reply in stream] == [vector(SIZE).tolist()]


def test_a_large_batch_goes_in_parts(runtime: FakeRuntime, triton: Triton, lent: Any) -> None:
    """Rows of a tensor are cut on the GPU; the joined reply is numpy's."""
    values = torch.arange(20.0 * SIZE).reshape(20, SIZE)
    (reply,) = lent.predict_many([CudaTensor(runtime, values)])
    assert reply["y"].tolist() == values.tolist()
    assert all(triton.placed)


def test_threads_share_a_client(runtime: FakeRuntime, triton: Triton, lent: Any) -> None:
    """Many threads get right answers while outputs of others are held."""
    wrong: list[float] = []

    def work(start: float) -> None:
        held: list[Any] = []
        for number in range(10):
            held.append(lent.predict(x=CudaTensor(runtime, vector(SIZE, start + number)))["y"])
            held = held[-3:]
        if [float(np.asarray(y)[0, 0]) for y in held] != [start + 7, start + 8, start + 9]:
            wrong.append(start)

    threads = [threading.Thread(target=work, args=(1000.0 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tasks_share_a_client(runtime: FakeRuntime, triton: Triton) -> None:
    """The same with tasks; after the end only held outputs keep memory."""

    async def run() -> list[Any]:
        async with AsyncClient(transport=_Tasks(triton), shared_memory=LENT) as client:
            model = await client.model("copy")
            calls = [model.predict(x=CudaTensor(runtime, vector(SIZE, number))) for number in range(8)]
            return [reply["y"] for reply in await asyncio.gather(*calls)]

    outputs = asyncio.run(run())
    assert [float(np.asarray(y)[0, 0]) for y in outputs] == list(range(8))
    assert triton.regions == {}
    before = len(runtime.taken)
    outputs.clear()
    eventually(lambda: gc.collect() >= 0 and len(runtime.taken) == before - 8)


class _Tasks(AsyncTriton):
    """The server for tasks."""

    async def close(self) -> None:
        """End nothing: a test has one server."""
