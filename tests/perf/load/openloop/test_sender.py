"""Sending at given moments, against a real gRPC server of Triton's service in this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.perf.load.openloop import servers as module
from tritonkit.perf.load.openloop.sender import INTERRUPTED, MISSED, LoadRequest, Record, Sender, Stop

Answer = Callable[[int], int]


class Numbers(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers a request, which is a number, by another."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One output, `y` INT32 [1]."""
        number = self.answer(int(np.frombuffer(request.raw_input_contents[0], np.int32)[0]))
        if number < 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
        reply = service_pb2.ModelInferResponse(model_name="numbers", model_version="1")
        reply.outputs.add(name="y", datatype="INT32", shape=[1])
        reply.raw_output_contents.append(np.int32(number).tobytes())
        return reply


@contextlib.contextmanager
def serving(answer: Answer, workers: int = 8, port: int = 0, **options: int) -> Iterator[str]:
    """A server for the block; gives its address."""
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    server = grpc.server(ThreadPoolExecutor(workers), options=named)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Numbers(answer), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def prepared(number: int, right: int | None = None, size: int = 0) -> LoadRequest:
    """A request whose answer must be `right`, by default the number itself; `size` more bytes in its id."""
    request = service_pb2.ModelInferRequest(model_name="numbers", id="x" * size)
    request.inputs.add(name="x", datatype="INT32", shape=[1])
    request.raw_input_contents.append(np.int32(number).tobytes())
    expected = number if right is None else right

    def check(outputs: Mapping[str, Any]) -> str:
        return "" if outputs["y"][0] == expected else "another number"

    return LoadRequest([request.SerializeToString()], check)


def send(
    addresses: list[str],
    requests: list[LoadRequest],
    moments: list[float],
    *,
    timeout_s: float = 30.0,
    stop: Stop | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    most: int | None = None,
) -> Record:
    """Run a sender: request k at moment k, round and round."""
    sender = Sender(addresses, requests, timeout_s, stop or Stop(), interrupted, most)
    choice = np.arange(len(moments)) % len(requests)
    return sender.run(np.array(moments), choice, time.monotonic() + 0.05)


def test_each_request_is_sent_at_its_moment_and_answered() -> None:
    """None before it was due; every answer is checked."""
    moments = [k / 200 for k in range(100)]
    with serving(lambda number: number) as address:
        record = send([address], [prepared(k) for k in range(7)], moments)
    assert record.outcome.tolist() == [0] * 100
    assert (record.sent >= record.intended).all()
    assert (record.answered > record.sent).all()
    assert not record.ended
    assert record.cpu_s > 0


def test_a_server_that_stalls_delays_no_request_and_every_latency_shows_it() -> None:
    """Requests that were due during a pause waited for its end: a closed loop would have sent one request."""

    def answer(number: int) -> int:
        if number == 0:
            time.sleep(0.5)
        return number

    moments = [k / 100 for k in range(50)]
    with serving(answer, workers=1) as address:
        record = send([address], [prepared(k) for k in range(50)], moments)
    assert (record.outcome == 0).all()
    # The server stood still from the first request on, so no later one was answered within 0.5 s of it.
    waited = record.answered - record.intended
    assert (waited + np.array(moments) >= 0.5).all()


@pytest.mark.slow
def test_a_closed_loop_may_last_longer_than_a_request() -> None:
    """A request's time begins when it is sent: one whose turn comes late has not failed, one that is slow has."""
    over = threading.Event()

    def answer(number: int) -> int:
        if number == 3:
            over.wait()
        time.sleep(0.3)
        return number

    with serving(answer) as address:
        try:
            record = send([address], [prepared(k) for k in range(12)], [0.0] * 12, timeout_s=3.0, most=1)
        finally:
            over.set()
    assert [k for k, outcome in enumerate(record.outcome) if outcome] == [3]
    assert record.answered[-1] - record.intended[-1] > 3.0
    assert next(iter(record.failures)).startswith("DeadlineExceeded")


def test_wrong_answers_and_refusals_are_failures_with_their_words() -> None:
    """Also a check that fails itself, and an answer without the output."""

    def broken(outputs: Mapping[str, Any]) -> str:
        return str(outputs["z"])

    requests = [prepared(1), prepared(1, right=2), prepared(-1), LoadRequest(prepared(1).body, broken)]
    with serving(lambda number: number) as address:
        record = send([address], requests, [0.0, 0.01, 0.02, 0.03, 0.04, 0.05])
    words = [record.failures[code - 1] if code else "" for code in record.outcome]
    assert words[0] == words[4] == ""
    assert words[1] == words[5] == "another number"
    assert words[2].startswith("Overloaded: ")
    assert words[3] == "the check failed: KeyError: 'z'"


@pytest.mark.slow
def test_no_answer_in_time_is_a_failure() -> None:
    """The others go on; they have seconds, for the machine may be busy."""
    over = threading.Event()

    def answer(number: int) -> int:
        if number:
            over.wait()
        return number

    with serving(answer) as address:
        try:
            record = send([address], [prepared(0), prepared(1)], [0.0, 0.0, 0.0], timeout_s=8.0)
        finally:
            over.set()
    assert record.outcome.tolist() == [0, 1, 0]
    assert record.failures == ("DeadlineExceeded: no answer within 8 s",)


def test_a_limit_of_calls_at_once_makes_requests_wait_not_fail() -> None:
    """It is the server's own, so the wait is part of the latency."""
    with serving(lambda number: number, max_concurrent_streams=2) as address:
        record = send([address], [prepared(3)], [0.0] * 40)
    assert record.outcome.tolist() == [0] * 40


def test_a_closed_loop_has_only_so_many_under_way() -> None:
    """All are due together; each counts from when there was room for it, and none is refused."""
    under_way, most = [0], [0]

    def answer(number: int) -> int:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        time.sleep(0.01)
        under_way[0] -= 1
        return number

    with serving(answer) as address:
        sender = Sender([address], [prepared(1)], 30.0, Stop(), lambda: False, 3)
        record = sender.run(np.zeros(60), np.zeros(60, np.int64), time.monotonic())
    assert (record.outcome == 0).all()
    assert most[0] <= 3
    assert (np.diff(record.sent) >= 0).all()
    assert record.sent[-1] > 0.1
    assert np.median(record.answered - record.sent) < 0.1


def test_a_full_server_delays_no_request_to_another() -> None:
    """Each has its own queue of what waits for room."""

    def slowly(number: int) -> int:
        time.sleep(0.05)
        return number

    with serving(slowly, max_concurrent_streams=1) as full, serving(lambda number: number) as free:
        record = send([full, free], [prepared(3)], [0.0] * 30)
    assert record.outcome.tolist() == [0] * 30
    # The first server alone takes 15 times 50 ms; the other one's answers are all there before its last.
    assert record.answered[1::2].max() < record.answered[::2].max()


def test_a_server_that_says_goodbye_loses_no_request() -> None:
    """Calls under way are answered on the old connection, new ones go over another."""

    def slowly(number: int) -> int:
        time.sleep(0.05)
        return number

    with serving(slowly, max_connection_age_ms=200) as address:
        record = send([address], [prepared(3)], [k / 50 for k in range(60)])
    assert record.outcome.tolist() == [0] * 60, record.failures


def test_messages_larger_than_the_windows_arrive() -> None:
    """A megabyte goes as far as the server's windows open."""
    with serving(lambda number: number) as address:
        record = send([address], [prepared(3, size=2**20)], [0.0, 0.0, 0.01, 0.02])
    assert record.outcome.tolist() == [0] * 4


def test_servers_get_requests_in_turns() -> None:
    """With two addresses each gets half."""
    numbers: list[list[int]] = [[], []]

    def noting(k: int) -> Answer:
        return lambda number: numbers[k].append(number) or number

    with serving(noting(0)) as first, serving(noting(1)) as second:
        record = send([first, second], [prepared(k) for k in range(4)], [0.0] * 20)
    assert (record.outcome == 0).all()
    assert sorted(numbers[0]) == [0] * 5 + [2] * 5
    assert sorted(numbers[1]) == [1] * 5 + [3] * 5


def test_a_run_ends_when_its_target_is_missed_for_certain() -> None:
    """After one more late answer than may be; what was sent is waited for. A busy machine has minutes to see it."""
    moments = [k / 100 for k in range(9000)]
    with serving(lambda number: number) as address:
        record = send([address], [prepared(1, right=2)], moments, stop=Stop(0.0, 3, from_s=0.1))
    assert record.ended == MISSED
    sent = int((record.outcome >= 0).sum())
    assert 13 < sent < len(moments)
    assert (record.outcome[:sent] == 1).all()
    assert (record.outcome[sent:] == -1).all()
    assert np.isnan(record.sent[sent:]).all()


def test_an_interrupt_keeps_what_was_counted() -> None:
    """Answers under way are waited for."""
    interrupts, moments = iter([False] * 20), [k / 100 for k in range(9000)]
    with serving(lambda number: number) as address:
        record = send([address], [prepared(1)], moments, interrupted=lambda: next(interrupts, True))
    assert record.ended == INTERRUPTED
    sent = int((record.outcome >= 0).sum())
    assert 0 < sent < len(moments)
    assert (record.outcome[:sent] == 0).all()


def test_a_server_that_goes_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests fail, and after a while there is no more point in sending."""
    monkeypatch.setattr(module, "_GONE_S", 0.3)
    stack = contextlib.ExitStack()
    address = stack.enter_context(serving(lambda number: number))
    sender = Sender([address], [prepared(1)], 5.0, Stop(), lambda: False)
    stack.close()
    moments = np.arange(0.0, 20.0, 0.01)
    record = sender.run(moments, np.zeros(len(moments), np.int64), time.monotonic())
    assert f"{address}: UNAVAILABLE" in record.ended
    assert (record.outcome != 0).all()
    assert all("ServerUnavailable" in words for words in record.failures)


def test_a_server_that_comes_back_is_used_again() -> None:
    """On a new connection, by itself."""
    stack = contextlib.ExitStack()
    address = stack.enter_context(serving(lambda number: number))
    numbers: list[int] = []
    # Once it is asked again the run has shown what it is for.
    sender = Sender([address], [prepared(1)], 5.0, Stop(), lambda: len(numbers) > 20)
    stack.close()
    with serving(lambda number: numbers.append(number) or number, port=int(address.rpartition(":")[2])):
        moments = np.arange(0.0, 90.0, 0.01)
        record = sender.run(moments, np.zeros(len(moments), np.int64), time.monotonic())
    assert record.ended == INTERRUPTED
    assert record.outcome[record.outcome >= 0][-1] == 0
