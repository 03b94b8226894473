"""Regions: used again when that is safe, given up when not, and never left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.shm.conftest import SIZE, Predict, steps
from tests.client.shm.fake import AsyncTriton, FakeTriton, left_behind, vector
from tests.waiting import eventually
from tritonkit.client.shm import RegionPool, SharedMemory, system
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, ModelNotFound, ServerUnavailable, UsageError


def test_tensors_travel_in_a_region(predict: Predict, triton: FakeTriton) -> None:
    """The answer is right, is a read-only view, and nothing is left under /dev/shm."""
    before = left_behind()
    answer = predict(vector(SIZE))
    assert answer.tolist() == vector(SIZE).tolist()
    assert not answer.flags.writeable
    assert triton.calls == ["SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "ModelInfer"]
    assert left_behind() == before


def test_a_region_is_used_again(predict: Predict, triton: FakeTriton) -> None:
    """Calls one after the other need one region, whose registration is made once."""
    for number in range(5):
        assert predict(vector(SIZE, number))[0, 0] == number
    assert len(triton.regions) == 1


def test_an_answer_keeps_its_region(predict: Predict, triton: FakeTriton) -> None:
    """While an answer, or a slice of it, is held, later calls do not write over it."""
    part = predict(vector(SIZE))[:, 2:4]
    predict(vector(SIZE, 50))
    predict(vector(SIZE, 60))
    assert part.tolist() == [[2.0, 3.0]]
    assert len(triton.regions) == 2
    del part
    predict(vector(SIZE, 70))
    assert len(triton.regions) == 2


@pytest.mark.parametrize(
    "array",
    [
        np.arange(SIZE, dtype=">f4").reshape(1, SIZE),
        np.arange(2 * SIZE, dtype=np.float32)[::2].reshape(1, SIZE),
        np.asfortranarray(np.arange(4 * SIZE, dtype=np.float32).reshape(4, SIZE)),
    ],
)
def test_any_layout_is_written_right(predict: Predict, array: np.ndarray[Any, Any]) -> None:
    """Big-endian, strided and column-major arrays arrive as their values."""
    assert predict(array).tolist() == array.tolist()


def test_bf16_is_rounded_and_comes_back(predict: Predict) -> None:
    """BF16 goes and comes as two bytes, and is float32 on this side."""
    answer = predict(np.full((1, 8), 1.5, np.float32), datatype="BF16")
    assert answer.dtype == np.float32
    assert answer.tolist() == [[1.5] * 8]


def test_bytes_go_in_a_region_and_come_in_the_message(predict: Predict) -> None:
    """The length of BYTES outputs is not known before, so only inputs are placed."""
    array = np.array([[b"one", b"", b"three"]], object)
    assert predict(array, datatype="BYTES").tolist() == array.tolist()


def test_small_calls_get_no_region() -> None:
    """Below the smallest size tensors travel in the message."""
    pool = RegionPool(SharedMemory(smallest=1000))
    assert pool.for_call({"x": ("UINT8", np.zeros(400, np.uint8))}, {"y": 400}) is None
    assert pool.for_call({"x": ("UINT8", np.zeros(600, np.uint8))}, {"y": 600}) is not None


def test_a_call_given_up_never_shares_its_region(predict: Predict, triton: FakeTriton, pool: RegionPool) -> None:
    """A server that goes on with a call writes into memory that no later call looks at."""
    triton.give_up = True
    with pytest.raises(DeadlineExceeded):
        predict(vector(SIZE, 1))
    triton.give_up = False
    given_up = set(triton.regions)
    answer = predict(vector(SIZE, 2))
    triton.finish()
    assert answer.tolist() == vector(SIZE, 2).tolist()
    assert len(triton.regions) == 2  # the server refused to forget what it uses
    del answer
    eventually(lambda: predict(vector(SIZE, 3)) is not None and not given_up & set(triton.regions))


def test_a_refused_call_gives_its_region_back(predict: Predict, triton: FakeTriton) -> None:
    """After the server's own error the region is used again: the server is done with it."""
    predict(vector(SIZE))
    triton.answers["ModelInfer"] = _fail
    with pytest.raises(InferenceError, match="no"):
        predict(vector(SIZE))
    triton.answers.clear()
    predict(vector(SIZE))
    assert len(triton.keys) == 1


def _fail(_: Any) -> Any:
    raise InferenceError("model copy", found="no")


def test_a_restarted_server_costs_no_call(predict: Predict, triton: FakeTriton) -> None:
    """A server that has forgotten the region gets a new one and the same call once more."""
    held = predict(vector(SIZE, 7))
    predict(vector(SIZE))
    triton.restart()
    calls = triton.calls.count("ModelInfer")
    assert predict(vector(SIZE, 9))[0, 0] == 9
    assert triton.calls.count("ModelInfer") == calls + 2
    assert held[0, 0] == 7
    assert len(triton.regions) == 1


def test_a_server_that_forgets_every_region_fails_the_call(predict: Predict, triton: FakeTriton) -> None:
    """It is made once more and not for ever; the error is the server's own."""

    def forget(request: Any) -> Any:
        answer = triton.answer("SystemSharedMemoryRegister", request)
        triton.regions.clear()
        return answer

    triton.answers["SystemSharedMemoryRegister"] = forget
    with pytest.raises(ModelNotFound, match="Unable to find shared memory region"):
        predict(vector(SIZE))
    assert triton.calls.count("ModelInfer") == 2


def test_a_model_not_there_is_no_lost_region(predict: Predict, triton: FakeTriton) -> None:
    """An error that does not name the region is raised, and the call is not made once more."""
    triton.answers["ModelInfer"] = _fail
    with pytest.raises(InferenceError):
        predict(vector(SIZE))
    assert triton.calls.count("ModelInfer") == 1


def test_a_server_elsewhere_gets_messages(predict: Predict, caplog: pytest.LogCaptureFixture) -> None:
    """A server that cannot open the region is told of once, and not asked again for a while."""
    far = FakeTriton("far:8001", local=False)
    with caplog.at_level(logging.WARNING, "tritonkit"):
        for _ in range(3):
            assert predict(vector(SIZE), transport=far)[0, 1] == 1
    assert [record.args[0] for record in caplog.records if record.args] == ["far:8001"]
    assert far.calls.count("SystemSharedMemoryRegister") == 1
    assert far.calls.count("ModelInfer") == 3


def test_each_attempt_has_its_own_region(pool: RegionPool, triton: FakeTriton) -> None:
    """A second attempt at a server does not share memory with the first, which may still run."""
    regions = pool.for_call({"x": ("FP32", vector(SIZE))}, {"y": 4 * SIZE})
    assert regions is not None
    first = run_blocking(regions.place(triton, 5.0))
    second = run_blocking(regions.place(triton, 5.0))
    assert first is not None
    assert second is not None
    assert first.region is not second.region
    regions.end(triton.address)
    run_blocking(pool.for_call({"x": ("FP32", vector(SIZE))}, {}).place(triton, 5.0))  # type: ignore[union-attr]
    assert first.region.name not in triton.regions
    assert second.region.name in triton.regions


def test_a_failed_registration_leaves_no_file(predict: Predict, triton: FakeTriton) -> None:
    """A server that is not there is the attempt's failure, and nothing stays under /dev/shm."""
    before = left_behind()
    triton.unreachable = ServerUnavailable("here:8001", found="nobody")
    with pytest.raises(ServerUnavailable):
        predict(vector(SIZE))
    triton.unreachable = None
    assert left_behind() == before
    assert predict(vector(SIZE))[0, 3] == 3


def test_the_limit_holds(pool: RegionPool, predict: Predict, triton: FakeTriton) -> None:
    """Past the limit calls go in messages; free regions of other sizes make room."""
    small = [predict(vector(SIZE)) for _ in range(4 * 16 + 3)]
    assert pool.size <= 4 * 2**20
    assert len(triton.regions) == 4 * 16
    assert len(small) == 67
    small.clear()
    gc.collect()
    for _ in range(40):
        assert predict(vector(100_000))[0, -1] == 99_999
    assert pool.size <= 4 * 2**20
    assert max(len(region) for region in triton.regions.values()) > 800_000


def test_no_room_is_told(
    monkeypatch: pytest.MonkeyPatch, pool: RegionPool, predict: Predict, caplog: pytest.LogCaptureFixture
) -> None:
    """With no room for the first region a call says so; later ones go in messages."""
    real = os.posix_fallocate

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = left_behind()
    with pytest.raises(UsageError, match=r"MiB free of .*\n.*wanted: 0.1 MiB.*\n.*--shm-size"):
        predict(vector(SIZE))
    assert left_behind() == before
    monkeypatch.setattr(os, "posix_fallocate", real)
    held = predict(vector(SIZE))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with caplog.at_level(logging.WARNING, "tritonkit"):
        assert [predict(vector(SIZE))[0, 1] for _ in range(3)] == [1, 1, 1]
    assert len(caplog.records) == 1
    assert held[0, 1] == 1


def test_a_machine_without_it_is_told(monkeypatch: pytest.MonkeyPatch, predict: Predict, tmp_path: Path) -> None:
    """Without such a folder, the system's own message is in the error."""
    monkeypatch.setattr(system, "FOLDER", tmp_path / "none")
    with pytest.raises(UsageError, match=r"none: No such file or directory\n.*\n.*needs Linux"):
        predict(vector(SIZE))


def test_leaving_a_hung_server_ends(pool: RegionPool, predict: Predict, triton: FakeTriton) -> None:
    """Closing waits once, not once for each region."""
    held = [predict(vector(SIZE)) for _ in range(30)]
    attempts: list[Any] = []

    def hang(request: Any) -> Any:
        attempts.append(request)
        time.sleep(0.05)
        raise DeadlineExceeded("here:8001", found="no answer")

    triton.answers["SystemSharedMemoryUnregister"] = hang
    run_blocking(pool.leave(triton, 0.2))
    assert len(attempts) < 10
    assert len(held) == 30


def test_leaving_makes_the_server_forget(pool: RegionPool, predict: Predict, triton: FakeTriton) -> None:
    """After the client is closed the server holds nothing, and answers held stay readable."""
    held = [predict(vector(SIZE, number)) for number in range(3)]
    pool.close()
    assert triton.regions == {}
    assert pool.size == 0
    assert [answer[0, 0] for answer in held] == [0, 1, 2]


def test_leaving_a_dead_server_ends(pool: RegionPool, predict: Predict, triton: FakeTriton) -> None:
    """Closing does not wait long for a server that is gone, and raises nothing."""
    predict(vector(SIZE))
    triton.unreachable = ServerUnavailable("here:8001", found="nobody")
    run_blocking(pool.leave(triton, 0.2))


def test_regions_of_a_dropped_client_are_forgotten(predict: Predict, triton: FakeTriton) -> None:
    """A client that was not closed leaves regions at the server; the next one lets it forget them."""
    dropped = RegionPool(SharedMemory(smallest=1))
    predict(vector(SIZE), pool=dropped)
    (orphan,) = triton.regions
    del dropped
    gc.collect()
    predict(vector(SIZE))
    predict(vector(SIZE))
    assert orphan not in triton.regions


def test_threads_share_a_pool(predict: Predict, triton: FakeTriton, pool: RegionPool) -> None:
    """Many threads get right answers, with no more regions than calls at a time."""
    wrong: list[float] = []

    def work(start: float) -> None:
        for number in range(20):
            if predict(vector(SIZE, start + number))[0, 0] != start + number:
                wrong.append(start)

    threads = [threading.Thread(target=work, args=(1000.0 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(triton.regions) <= 8
    pool.close()
    assert triton.regions == {}


def test_tasks_share_a_pool(pool: RegionPool, triton: FakeTriton) -> None:
    """The same steps run in tasks, and closing waits for the server to forget."""

    async def run() -> list[float]:
        transport = AsyncTriton(triton)
        calls = [run_async(steps(pool, transport, vector(SIZE, n))) for n in range(10)]
        answers = [float(answer[0, 0]) for answer in await asyncio.gather(*calls)]
        await pool.aclose()
        return answers

    assert asyncio.run(run()) == list(range(10))
    assert triton.regions == {}


class _Hanging(AsyncTriton):
    """Never answers one kind of call, though the server gets it."""

    def __init__(self, server: FakeTriton, method: str) -> None:
        super().__init__(server)
        self.method = method
        self.hangs = asyncio.Event()

    async def send(self, method: str, body: Any, timeout_s: float, headers: Any = ()) -> memoryview:
        """Answer one message, or hang."""
        answer = await super().send(method, body, timeout_s, headers)
        if method == self.method:
            self.hangs.set()
            await asyncio.sleep(60)
        return answer


@pytest.mark.parametrize("method", ["SystemSharedMemoryRegister", "ModelInfer"])
def test_a_cancelled_task_leaves_nothing(pool: RegionPool, triton: FakeTriton, method: str) -> None:
    """Cancelled while registering or inferring: no file stays, and the region is not used again."""
    before = left_behind()

    async def run() -> None:
        transport = _Hanging(triton, method)
        task = asyncio.create_task(run_async(steps(pool, transport, vector(SIZE))))
        await transport.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left_behind() == before
        (doubtful,) = triton.regions
        transport.method = ""
        await run_async(steps(pool, transport, vector(SIZE)))
        assert doubtful not in triton.regions
        await pool.aclose()

    asyncio.run(run())
    assert triton.regions == {}
    assert pool.size == 0


def test_a_task_cancelled_before_its_region_is_made_leaves_no_file(pool: RegionPool, triton: FakeTriton) -> None:
    """The task is cancelled while the server lists the remains of killed processes."""
    before = left_behind()

    async def run() -> None:
        transport = _Hanging(triton, "SystemSharedMemoryStatus")
        task = asyncio.create_task(run_async(steps(pool, transport, vector(SIZE))))
        await transport.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert left_behind() == before
    assert pool.size == 0


def test_a_fork_is_refused(pool: RegionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked process would write into its parent's regions."""
    monkeypatch.setattr(pool, "_pid", 1)
    with pytest.raises(UsageError, match="fork"):
        pool.for_call({"x": ("FP32", vector(SIZE))}, {})


def test_old_files_are_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files of processes killed in the middle of a registration are removed by a later client."""
    monkeypatch.setattr(system, "FOLDER", tmp_path)
    old, new = f"{system._PREFIX}old", f"{system._PREFIX}new"
    for name in (old, new, "else"):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (1, 1))
    os.utime(tmp_path / "else", (1, 1))
    system.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", new]


def test_an_output_past_its_place_is_an_error(pool: RegionPool, triton: FakeTriton) -> None:
    """A server that tells of more bytes than there is room for is not believed."""
    regions = pool.for_call({"x": ("FP32", vector(SIZE))}, {"y": 4 * SIZE})
    assert regions is not None
    run_blocking(regions.place(triton, 5.0))
    for place in (("FP32", (2, SIZE)), ("BYTES", (1,)), ("FP32", (2**62,))):
        with pytest.raises(InferenceError, match="shared memory"):
            regions.read(triton.address, {"y": place})
    assert regions.read(triton.address, {"y": ("BYTES", (0, 3))})["y"].shape == (0, 3)
