"""One client under load, against a real Triton: threads, tasks, slow models, too many calls."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.at_once import at_once
from tests.server.models import VECTOR, ModelText, await_begun
from tests.waiting import PATIENCE_S, eventually, standstill
from tritonkit.client import Adaptive, AsyncClient, Client, Limit
from tritonkit.errors import DeadlineExceeded, ModelNotFound, Overloaded
from tritonkit.serve import Endpoint, serve

CANCELLABLE = """import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # Works for as many seconds as x says, unless nobody waits any more; y counts cancelled requests. A request that
    # takes its time is noted in a file when it begins.
    def initialize(self, args):
        self.cancelled = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0, 0] > 0:
                open("BEGUN", "a").write(".")
            end = time.monotonic() + float(x[0, 0])
            while time.monotonic() < end:
                if request.is_cancelled():
                    self.cancelled += 1
                    break
                time.sleep(0.005)
            y = pb_utils.Tensor("y", x * 0 + self.cancelled)
            answers.append(pb_utils.InferenceResponse([y]))
        return answers
"""
SMALL_QUEUE = """backend: "python"
max_batch_size: 1
dynamic_batching { default_queue_policy { max_queue_size: 8 } }
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
"""
CALLERS = 32
NOTHING = np.zeros(4, np.float32)


@pytest.fixture
def served(write_server_models: Any, project: Path, begun: Path) -> Iterator[Endpoint]:
    """Models that take as long as they are told; `small` has a queue for eight."""
    repository = write_server_models(
        echo=ModelText(),
        slow=ModelText('backend: "python"\n' + VECTOR, CANCELLABLE.replace("BEGUN", str(begun))),
        small=ModelText(SMALL_QUEUE),
    )
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint:
        yield endpoint


def row(number: int) -> Any:
    """An item that is told apart from others: the first value is the time to take, 0 seconds."""
    return np.array([0, number, number + 1, number + 2], np.float32)


@pytest.mark.parametrize("batching", [None, Adaptive()])
def test_64_threads_share_one_client(digits_server: Endpoint, batching: Adaptive | None) -> None:
    """Each gets the answer to its own image, with and without joined requests."""
    images = np.random.default_rng(0).random((64, 1, 8, 8), dtype=np.float32)
    with Client(digits_server.grpc, batching=batching) as client:
        network = client.model("digits_network")
        (output,) = network.signature.outputs
        expected = network.predict(pixels=images)[output]

        def caller(own: int) -> list[Any]:
            return [network.predict(pixels=images[own]) for _ in range(20)]

        with ThreadPoolExecutor(64) as pool:
            replies_by_caller = list(pool.map(caller, range(64)))
    for own, replies in enumerate(replies_by_caller):
        for reply in replies:
            np.testing.assert_allclose(reply[output][0], expected[own], rtol=1e-3, atol=1e-5)
    largest = max(reply.batch_size for replies in replies_by_caller for reply in replies)
    assert largest == 1 if batching is None else largest > 4


def test_2000_tasks_share_one_client(digits_server: Endpoint) -> None:
    """All are answered, and memory grows by far less than a thread for each would take."""
    images = np.random.default_rng(0).random((2000, 1, 8, 8), dtype=np.float32)

    async def program() -> list[Any]:
        async with AsyncClient(digits_server.grpc, timeout_s=120) as client:
            network = await client.model("digits_network")
            await network.predict(pixels=images[0])
            return await asyncio.gather(*(network.predict(pixels=image) for image in images))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replies = asyncio.run(program())
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(replies) == 2000
    assert grown_mib < 200
    with Client(digits_server.grpc) as client:
        expected = client.model("digits_network").predict(pixels=images[1999])
    (output,) = expected
    np.testing.assert_allclose(replies[1999][output], expected[output], rtol=1e-3, atol=1e-5)


def test_a_call_that_is_given_up_is_cancelled_at_the_server(served: Endpoint) -> None:
    """After a deadline the model sees that nobody waits, and is free again long before it would be."""
    an_hour = np.array([3600, 0, 0, 0], np.float32)
    with Client(served.grpc) as client:
        slow = client.model("slow")
        before = standstill(lambda: ended(client, "slow"))
        with pytest.raises(DeadlineExceeded):
            slow.predict(x=an_hour, timeout_s=5.0)
        assert slow.predict(x=NOTHING, timeout_s=PATIENCE_S)["y"][0, 0] == 1
        eventually(lambda: ended(client, "slow") >= before + 2, "both counted")
        assert standstill(lambda: ended(client, "slow")) == before + 2


def test_a_cancelled_task_cancels_at_the_server(served: Endpoint, begun: Path) -> None:
    """Like a deadline: the model sees it."""

    async def program() -> float:
        async with AsyncClient(served.grpc) as client:
            slow = await client.model("slow")
            task = slow.submit(x=np.array([3600, 0, 0, 0], np.float32))
            await asyncio.to_thread(await_begun, begun)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return float((await slow.predict(x=NOTHING, timeout_s=PATIENCE_S))["y"][0, 0])

    assert asyncio.run(program()) == 1


def ended(client: Client, model: str) -> int:
    """The requests of a model that have been counted: Triton counts after it has answered."""
    (counters,) = client.statistics(model)
    return counters.success_count + counters.failure_count


def test_too_much_is_turned_away_and_not_multiplied(served: Endpoint) -> None:
    """Three times what a model with one place and a queue of eight can do: what is refused is `Overloaded`,
    work goes on, and at most a tenth of the calls is sent again."""
    work = np.array([0.01, 0, 0, 0], np.float32)
    counts: Counter[str] = Counter()
    lock = threading.Lock()
    with Client(served.grpc, timeout_s=PATIENCE_S) as client:
        small = client.model("small")
        client.model("small").predict(x=work)

        def caller(_: int, over: threading.Event) -> None:
            due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                due += CALLERS / (3 * 100)
                try:
                    outcome = Counter(answered=1, sent=small.predict(x=work).attempts)
                except Overloaded:
                    outcome = Counter(refused=1)
                with lock:
                    counts.update(outcome)

        with at_once(CALLERS, caller):
            eventually(lambda: counts["answered"] > 200 and counts["refused"] > 200, "answers and refusals")
        assert client.is_ready("small")
        small.predict(x=work)
    extra = counts["sent"] - counts["answered"]
    assert extra <= 0.1 * (counts["answered"] + counts["refused"]) + 20


def test_what_triton_says_of_a_full_queue_proves_that_nothing_was_begun(served: Endpoint) -> None:
    """A refused call is sent again even where it may not run twice; so is a call of an unknown model."""
    work = np.array([0.2, 0, 0, 0], np.float32)
    refused: list[Overloaded] = []
    with Client(served.grpc, retry=None) as client:
        small = client.model("small")

        def caller(_: int) -> None:
            try:
                small.predict(x=work)
            except Overloaded as error:
                refused.append(error)

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(caller, range(24)))
        with pytest.raises(ModelNotFound) as unknown:
            client.model("nothing")
    assert refused
    assert all(error.unprocessed for error in refused)
    assert unknown.value.unprocessed


def test_a_limit_keeps_an_overloaded_server_quick(served: Endpoint) -> None:
    """With a limit of its own the client turns calls away before they are sent: none is refused there."""
    work = np.array([0.01, 0, 0, 0], np.float32)
    refused: list[str] = []
    with Client(served.grpc, limit=Limit(in_flight=4, waiting=4), retry=None) as client:
        small = client.model("small")

        def caller(_: int) -> None:
            for _ in range(5):
                try:
                    small.predict(x=work)
                except Overloaded as error:
                    refused.append(error.where)

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(caller, range(24)))
    assert refused
    assert not [where for where in refused if served.grpc in where]
