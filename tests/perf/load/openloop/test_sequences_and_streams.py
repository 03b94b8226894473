"""Sequences and streams at given moments, against a real gRPC server of Triton's service in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.perf.load.kinds import SEQUENCE, STREAM, Kind
from tritonkit.perf.load.openloop.record import (
    INTERRUPTED,
    MISSED,
    LoadRequest,
    Record,
    Stop,
    joined_records,
    load_record,
    save_record,
)
from tritonkit.perf.load.openloop.sender import Sender
from tritonkit.perf.load.openloop.units import unit_series, whole_sequences

_FAILS = 13
"""The number that the server refuses."""


class Numbers(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Notes each call of a sequence, and answers a stream by that many replies."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool, bool, int]] = []
        self.hold = threading.Event()
        self.hold.set()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """The same number; a refusal for `_FAILS`."""
        number, facts = _number(request), request.parameters
        self.calls.append(
            (
                facts["sequence_id"].int64_param,
                facts["sequence_start"].bool_param,
                facts["sequence_end"].bool_param,
                number,
            )
        )
        self.hold.wait(30)
        if number == _FAILS:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not this number")
        return _answer(number)

    def ModelStreamInfer(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - gRPC's name
        """Gives the number of replies in the request; after five an error instead."""
        for request in requests:
            for number in range(_number(request)):
                if number == 5:
                    yield service_pb2.ModelStreamInferResponse(error_message="no more than five")
                    return
                reply = _answer(number)
                yield service_pb2.ModelStreamInferResponse(infer_response=reply)
                while not self.hold.wait(0.05) and context.is_active():
                    pass


def _number(request: Any) -> int:
    return int(np.frombuffer(request.raw_input_contents[0], np.int32)[0])


def _answer(number: int) -> Any:
    reply = service_pb2.ModelInferResponse(model_name="numbers", model_version="1")
    reply.outputs.add(name="y", datatype="INT32", shape=[1])
    reply.raw_output_contents.append(np.int32(number).tobytes())
    return reply


@pytest.fixture
def numbers() -> Iterator[tuple[Numbers, str]]:
    """A server, and its address."""
    service = Numbers()
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service, address
    finally:
        service.hold.set()
        server.stop(None).wait()


def prepared(number: int, kind: Kind, calls: int = 1, after: int = 0) -> LoadRequest:
    """A request of the number; 99 is a wrong answer."""
    request = service_pb2.ModelInferRequest(model_name="numbers")
    request.inputs.add(name="x", datatype="INT32", shape=[1])
    request.raw_input_contents.append(np.int32(number).tobytes())

    def check(outputs: Mapping[str, Any]) -> str:
        return "wrong" if outputs["y"][0] == 99 else ""

    return LoadRequest([request.SerializeToString()], check, 1, kind, calls, after)


def send(
    address: str,
    requests: list[LoadRequest],
    moments: list[float],
    *,
    stop: Stop | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Record:
    """Run a sender: request k at moment k."""
    sender = Sender([address], requests, 30.0, stop or Stop(), interrupted)
    return sender.run(np.array(moments), np.arange(len(moments)), time.monotonic() + 0.05)


def test_a_sequence_goes_through_requests_call_by_call(numbers: tuple[Numbers, str]) -> None:
    """Three calls of one id each, the first of which begins and the last of which ends; later ones are due when the
    one before was answered."""
    service, address = numbers
    requests = [prepared(k, SEQUENCE, 3, (k + 1) % 4) for k in range(4)]
    record = send(address, requests, [0.0, 0.01, 0.02, 0.03])
    assert record.outcome.tolist() == [0] * 12
    assert sorted(record.of.tolist()) == sorted([0, 1, 2, 3] * 3)
    assert len({name for name, *_ in service.calls}) == 4
    for arrival in range(4):
        own = np.flatnonzero(record.of == arrival)
        assert record.intended[own[1:]].tolist() == record.answered[own[:-1]].tolist()
        (name,) = {n for n, start, _, number in service.calls if start and number == arrival}
        calls = [call[1:] for call in service.calls if call[0] == name]
        firsts = [(arrival + k) % 4 for k in range(3)]
        assert calls == [(True, False, firsts[0]), (False, False, firsts[1]), (False, True, firsts[2])]


def test_a_call_that_fails_ends_its_sequence(numbers: tuple[Numbers, str]) -> None:
    """At the server too, by a call that is not counted; the sequence has failed once."""
    service, address = numbers
    requests = [prepared(1, SEQUENCE, 3, 1), prepared(_FAILS, SEQUENCE, 3, 0)]
    record = send(address, requests, [0.0])
    assert (record.outcome > 0).tolist() == [False, True]
    assert [call[1:] for call in service.calls] == [(True, False, 1), (False, False, _FAILS), (False, True, _FAILS)]
    whole = whole_sequences(record, np.ones(2, bool), 3)
    assert whole.outcome.tolist() == [1]


def test_an_interrupt_ends_the_sequences_under_way(numbers: tuple[Numbers, str]) -> None:
    """The call under way is waited for; then the sequence ends, and counts neither as right nor as failed."""
    service, address = numbers
    service.hold.clear()

    def interrupted() -> bool:
        if not service.calls:
            return False
        service.hold.set()
        return True

    record = send(address, [prepared(7, SEQUENCE, 100, 0)], [0.0], interrupted=interrupted)
    assert record.ended == INTERRUPTED
    assert (record.outcome == 0).all()
    assert [call[1:3] for call in service.calls][:: len(service.calls) - 1] == [(True, False), (False, True)]
    assert len(service.calls) == len(record.outcome) + 1 < 100
    assert len(whole_sequences(record, np.ones(len(record.of), bool), 100).outcome) == 0


def test_first_calls_that_wait_end_a_trial(numbers: tuple[Numbers, str]) -> None:
    """They are late by their moments, as requests are."""
    service, address = numbers
    service.hold.clear()
    moments_called: list[float] = []

    def let_go() -> bool:
        if service.calls:
            moments_called.append(time.monotonic())
        if moments_called and time.monotonic() - moments_called[0] > 0.5:
            service.hold.set()
        return False

    requests = [prepared(1, SEQUENCE, 2, 0)] * 2
    stop = Stop(late_ms=100.0, most_late=0)
    record = send(address, requests, [0.0, 20.0], stop=stop, interrupted=let_go)
    assert record.ended == MISSED
    assert record.outcome.tolist() == [0, -1]


def test_replies_of_streams_are_counted(numbers: tuple[Numbers, str]) -> None:
    """The last one answers; an error, or no reply, is a failure."""
    requests = [prepared(number, STREAM) for number in (3, 1, 0, 9)]
    record = send(numbers[1], requests, [0.0, 0.01, 0.02, 0.03])
    assert record.pieces
    assert record.pieces.replies.tolist() == [3, 1, 0, 5]
    words = [record.failures[code - 1] if code else "" for code in record.outcome]
    assert words[:2] == ["", ""]
    assert "a stream without a reply" in words[2]
    assert "no more than five" in words[3]
    assert (record.pieces.first <= record.answered)[:2].all()
    series = unit_series("numbers", STREAM, 1, record, np.ones(4, bool), 1.0, None)
    assert series.answers
    assert (series.right, series.failures, series.answers.count) == (2, 2, 4)


def test_an_interrupt_gives_streams_up(numbers: tuple[Numbers, str]) -> None:
    """One that goes on for long is not waited for, and not counted."""
    service, address = numbers
    service.hold.clear()
    late = time.monotonic() + 0.5
    requests = [prepared(2, STREAM)]
    record = send(address, requests, [0.0], interrupted=lambda: time.monotonic() > late)
    assert record.ended == INTERRUPTED
    assert record.outcome.tolist() == [-1]


def test_records_of_several_processes(numbers: tuple[Numbers, str], tmp_path: Any) -> None:
    """Calls stay with their own arrivals, also through files."""
    requests = [prepared(1, SEQUENCE, 2, 0)] * 2
    records = []
    for k in range(2):
        save_record(send(numbers[1], requests, [0.0, 0.01]), tmp_path / f"{k}.npz")
        records.append(load_record(tmp_path / f"{k}.npz"))
    joined = joined_records(records)
    firsts = joined.of == np.arange(8)
    assert np.flatnonzero(firsts).tolist() == [0, 1, 4, 5]
    assert np.bincount(joined.of).tolist() == [2, 2, 0, 0, 2, 2]
    series = unit_series("numbers", SEQUENCE, 2, joined, np.ones(8, bool), 1.0, None)
    assert (series.requests, series.right, series.unit) == (4, 4, "sequences")
    assert series.answers
    assert series.answers.count == 8
