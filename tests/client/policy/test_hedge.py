"""Asking a second server when the first is slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tritonkit.client.policy import Hedge, Policy, Retry
from tritonkit.client.policy.hedge import LatencyTracker
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, Overloaded, ServerUnavailable

LONG_S = 20.0
"""Far longer than any test: an answer that is not waited for."""


class Call:
    """One message to a server: answered when told, or cancelled."""

    def __init__(self, server: Server, timeout_s: float) -> None:
        self.server = server
        self.timeout_s = timeout_s
        self.cancelled = False
        self.ended = threading.Event()
        self.error: Exception | None = None

    def result(self) -> memoryview:
        """Wait for it."""
        if not self.ended.wait(self.timeout_s):
            raise DeadlineExceeded(self.server.address, found="no answer")
        if self.cancelled:
            raise InferenceError(self.server.address, found="cancelled")
        if self.error is not None:
            raise self.error
        return memoryview(self.server.address.encode())

    def wait(self, seconds: float) -> bool:
        """Whether it has ended."""
        return self.ended.wait(min(seconds, self.timeout_s))

    def given_up(self) -> bool:
        """Whether it ends by being cancelled; a helper thread may be about to."""
        return self.ended.wait(LONG_S) and self.cancelled

    def cancel(self) -> None:
        """Given up by the client."""
        self.cancelled = True
        self.ended.set()


class Server:
    """A server of threads and tasks: quick unless told to hang or to fail."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls: list[Call] = []
        self.hangs = False
        self.error: Exception | None = None
        self.after_s = 0.0
        self.then: Callable[[], None] = lambda: None

    def begin(self, method: str, body: Any, timeout_s: float, headers: Any = (), elsewhere: Any = None) -> Call:
        """Take a message."""
        call = Call(self, timeout_s)
        self.calls.append(call)
        call.error = self.error
        if self.after_s:
            threading.Timer(self.after_s, call.ended.set).start()
        elif not self.hangs:
            call.ended.set()
        self.then()
        return call

    def end(self, after_s: float = 0.0) -> None:
        """Answer what it was asked last, in a while."""
        threading.Timer(after_s, self.calls[-1].ended.set).start()

    def send(self, method: str, body: Any, timeout_s: float, headers: Any = (), elsewhere: Any = None) -> memoryview:
        """Take a message and wait."""
        return self.begin(method, body, timeout_s, headers).result()

    def close(self) -> None:
        """Nothing to close."""


class AsyncServer(Server):
    """The same for tasks."""

    async def send(  # type: ignore[override]
        self, method: str, body: Any, timeout_s: float, headers: Any = (), elsewhere: Any = None
    ) -> memoryview:
        """Take a message and wait."""
        call = self.begin(method, body, timeout_s, headers)
        try:
            ends = time.monotonic() + timeout_s
            while not call.ended.is_set():
                if time.monotonic() > ends:
                    raise DeadlineExceeded(self.address, found="no answer")
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call.result()

    async def close(self) -> None:  # type: ignore[override]
        """Nothing to close."""


class Pair:
    """Two servers behind one client that knows their usual latency; both kinds of client."""

    def __init__(self, kind: str, **settings: Any) -> None:
        self.servers: dict[str, Server] = {}
        self.kind = kind
        self.policy = Policy(["a:1", "b:1"], self._connect, hedge=Hedge(least_calls=20), **settings)
        assert self.policy.latencies is not None
        for _ in range(20):
            self.policy.latencies.add("m", 0.02)
            self.policy.latencies.add("usually slow", 10.0)

    def _connect(self, address: str, _: str | None) -> Server:
        made = AsyncServer(address) if self.kind == "tasks" else Server(address)
        self.servers[address] = made
        return made

    def only(self, address: str) -> tuple[Server, Server]:
        """Send the next call there first; that server and the other."""
        for replica in self.policy.pool.replicas:
            replica.latency_s = 0.001 if replica.address == address else 1.0
            replica.measured_at = time.monotonic()
        other = "b:1" if address == "a:1" else "a:1"
        return self.servers[address], self.servers[other]

    def call(self, timeout_s: float = LONG_S, **options: Any) -> Any:
        """One call, which may run twice unless `idempotent` says otherwise."""
        options.setdefault("idempotent", True)
        deadline = time.monotonic() + timeout_s
        options.setdefault("where", "m")
        steps = self.policy.call("ModelInfer", (b"x",), deadline, **options)
        return asyncio.run(run_async(steps)) if self.kind == "tasks" else run_blocking(steps)

    def in_flight(self) -> list[int]:
        """Calls counted at each server."""
        return [replica.in_flight for replica in self.policy.pool.replicas]


@pytest.fixture(params=["threads", "tasks"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """A client of two servers."""
    return Pair(request.param)


def test_a_quick_answer_is_not_hedged(pair: Pair) -> None:
    """An answer in the usual time asks nobody else."""
    _, second = pair.only("a:1")
    sent = pair.call(where="usually slow")
    assert (sent.endpoint, sent.attempts) == ("a:1", 1)
    assert not second.calls
    assert pair.in_flight() == [0, 0]


def test_a_slow_server_is_overtaken(pair: Pair) -> None:
    """After the usual time the other server is asked; its answer counts, and the first is cancelled."""
    first, _ = pair.only("a:1")
    first.hangs = True
    sent = pair.call()
    assert (sent.endpoint, sent.attempts) == ("b:1", 2)
    assert first.calls[0].given_up()
    assert sent.wait_s < LONG_S / 2
    assert pair.in_flight() == [0, 0]


def test_the_first_may_still_win(pair: Pair) -> None:
    """If the first answers after all, the second is cancelled."""
    first, second = pair.only("a:1")
    first.hangs = second.hangs = True
    second.then = lambda: first.end(0.02)
    sent = pair.call()
    assert (sent.endpoint, sent.attempts) == ("a:1", 2)
    assert second.calls[0].given_up()
    assert pair.in_flight() == [0, 0]


def test_the_first_lost_while_the_second_is_under_way(pair: Pair) -> None:
    """A server lost after the second was asked: the second's answer is waited for."""
    first, second = pair.only("a:1")
    first.hangs, first.error = True, ServerUnavailable("a:1", found="lost")

    def lost_then_answered() -> None:
        first.end()
        second.end(0.1)

    second.hangs, second.then = True, lost_then_answered
    sent = pair.call()
    assert (sent.endpoint, sent.attempts) == ("b:1", 2)
    assert pair.in_flight() == [0, 0]


def test_the_second_fails(pair: Pair) -> None:
    """A second server that fails takes nothing away from the first's answer."""
    first, second = pair.only("a:1")
    first.hangs, second.error = True, ServerUnavailable("b:1", found="lost")
    second.then = lambda: first.end(0.05)
    sent = pair.call()
    assert (sent.endpoint, sent.attempts) == ("a:1", 2)
    assert pair.in_flight() == [0, 0]


def test_the_first_answers_while_the_second_is_being_sent() -> None:
    """A call that is on its way out when the race ends is cancelled all the same."""
    pair, returned = Pair("threads"), threading.Event()
    first, second = pair.only("a:1")
    first.hangs = second.hangs = True

    def slow_to_send() -> None:
        first.end()
        returned.wait(LONG_S)

    second.then = slow_to_send
    assert pair.call().endpoint == "a:1"
    returned.set()
    assert second.calls[0].given_up()
    assert pair.in_flight() == [0, 0]
    pair.policy.close()


def test_an_answer_that_is_an_error_ends_the_race(pair: Pair) -> None:
    """The model's own error is an answer: it is not waited whether the other server says the same."""
    first, second = pair.only("a:1")
    first.error = InferenceError("a:1", found="bad")
    first.hangs = second.hangs = True
    second.then = first.end
    with pytest.raises(InferenceError, match="bad"):
        pair.call()
    assert second.calls[0].given_up()
    assert pair.in_flight() == [0, 0]


def test_both_fail(pair: Pair) -> None:
    """When both are lost the first's error is raised."""
    first, second = pair.only("a:1")
    first.hangs, first.error = True, ServerUnavailable("a:1", found="lost")
    second.error, second.then = Overloaded("b:1", found="full"), lambda: first.end(0.02)
    pair.policy.budget._tokens = 1.0  # for the hedge, none for a retry
    with pytest.raises(ServerUnavailable):
        pair.call()
    assert pair.in_flight() == [0, 0]


def test_both_hang(pair: Pair) -> None:
    """The deadline holds for both."""
    first, second = pair.only("a:1")
    first.hangs = second.hangs = True
    with pytest.raises(DeadlineExceeded):
        pair.call(timeout_s=0.5)
    assert pair.in_flight() == [0, 0]
    assert all(0 < call.timeout_s < 0.5 for call in second.calls)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_hedges_take_from_the_budget(kind: str) -> None:
    """With the budget spent, a slow server is waited for."""
    pair = Pair(kind)
    first, second = pair.only("a:1")
    first.after_s = 0.1
    pair.policy.budget._tokens = 0.0
    assert pair.call().attempts == 1
    assert not second.calls


@pytest.mark.parametrize("options", [{"idempotent": False}, {"where": "another model"}])
def test_what_is_not_hedged(pair: Pair, options: dict[str, Any]) -> None:
    """A call that may not run twice, and a model whose usual latency is not known."""
    first, second = pair.only("a:1")
    first.after_s = 0.1
    assert pair.call(**options).attempts == 1
    assert not second.calls


def test_without_retries_nothing_is_hedged() -> None:
    """One attempt is one message."""
    pair = Pair("threads", retry=Retry(attempts=1))
    first, second = pair.only("a:1")
    first.after_s = 0.1
    assert pair.call().attempts == 1
    assert not second.calls


def test_a_cancelled_task_cancels_both() -> None:
    """Cancelling a task whose call runs at two servers reaches both."""
    pair = Pair("tasks")
    first, second = pair.only("a:1")
    first.hangs = second.hangs = True

    async def story() -> None:
        deadline = time.monotonic() + LONG_S
        steps = pair.policy.call("ModelInfer", (b"x",), deadline, where="m", idempotent=True)
        task = asyncio.create_task(run_async(steps))
        while not second.calls:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)

    asyncio.run(story())
    assert first.calls[0].given_up()
    assert second.calls[0].given_up()
    assert pair.in_flight() == [0, 0]


def test_many_threads_with_one_server_that_stalls_at_times() -> None:
    """Sixteen threads, every twentieth call of one server stalls: all answered, nothing stays counted."""
    pair = Pair("threads")
    stalls = pair.servers["a:1"]
    real, count = stalls.begin, [0]

    def begin(*arguments: Any) -> Call:
        count[0] += 1
        stalls.hangs = count[0] % 20 == 0
        return real(*arguments)

    stalls.begin = begin  # type: ignore[method-assign]
    ends: list[str] = []

    def caller() -> None:
        ends.extend(pair.call(timeout_s=2.0).endpoint for _ in range(30))

    threads = [threading.Thread(target=caller) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 16 * 30
    assert pair.in_flight() == [0, 0]
    pair.policy.close()


def test_the_percentile_of_recent_latencies() -> None:
    """Slow is slower than 95 of 100 recent answers; before enough answers nothing is slow."""
    latencies = LatencyTracker(Hedge())
    for number in range(99):
        latencies.add("m", number / 1000)
    assert latencies.slow_after_s("m") is None
    latencies.add("m", 0.099)
    assert latencies.slow_after_s("m") == pytest.approx(0.094)
    for _ in range(640):
        latencies.add("m", 5.0)
    assert latencies.slow_after_s("m") == pytest.approx(5.0)


def test_latencies_of_endless_models_are_bounded() -> None:
    """Names without end do not fill the memory."""
    latencies = LatencyTracker(Hedge())
    for number in range(1000):
        latencies.add(f"m{number}", 0.1)
    assert latencies._of.cache_info().currsize <= 128
