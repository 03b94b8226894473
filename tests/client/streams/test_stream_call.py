"""The course of a stream as steps, without doing them: what is done after what."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tests.client.streams.conftest import Server
from tritonkit.client.core import Ask, Calls
from tritonkit.client.policy import Policy
from tritonkit.client.steps import run_blocking
from tritonkit.client.streams.stream_call import Course
from tritonkit.errors import DeadlineExceeded, InferenceError
from tritonkit.testing import FakeModel

STREAM = object()


@pytest.fixture
def calls(models: dict[str, FakeModel]) -> Calls:
    """The inside of a client that knows its model."""
    server = Server(models)
    calls = Calls(Policy(["memory"], lambda *_: server), 10.0)
    run_blocking(calls.signature(("count", "")))
    return calls


@pytest.fixture
def course(calls: Calls) -> Course:
    """A stream of it."""
    return Course(calls, Ask(("count", ""), {"x": [1, 0, -1]}))


def message(final: bool, error: str = "", outputs: bool = True) -> bytes:
    """One message of a stream."""
    response = service_pb2.ModelStreamInferResponse(error_message=error)
    answer = response.infer_response
    answer.model_name, answer.model_version = "count", "1"
    answer.parameters["triton_final_response"].bool_param = final
    if outputs and not error:
        answer.outputs.add(name="y", datatype="FP32", shape=[1])
        answer.raw_output_contents.append(bytes(4))
    return bytes(response.SerializeToString())


def kinds(steps: Generator[Any, Any, Any], results: list[Any]) -> tuple[list[str], Any]:
    """Do the steps with these results, errors raised; the steps' kinds, and what came out."""
    seen, give = [], iter(results)
    try:
        step = next(steps)
        while True:
            seen.append(type(step).__name__)
            result = next(give, None)
            step = (
                steps.throw(result)
                if isinstance(result, BaseException)
                else steps.send(STREAM if seen[-1] == "Open" else result)
            )
    except StopIteration as stop:
        return seen, stop.value
    except BaseException as error:
        return seen, error


def in_flight(calls: Calls) -> int:
    """Leases that are not given back."""
    return sum(replica.in_flight for replica in calls.policy.replicas())


def test_a_whole_stream(course: Course, calls: Calls) -> None:
    """One request; after the mark of the last answer the server's own end is read."""
    seen, reply = kinds(course.next(), [None, None, message(final=False)])
    assert seen == ["Open", "Request", "Read"]
    assert reply["y"].tolist() == [0]
    assert course.under_way
    assert in_flight(calls) == 1
    seen, reply = kinds(course.next(), [message(final=True, outputs=False), None])
    assert seen == ["Read", "Read", "Cancel"]
    assert reply is None
    assert in_flight(calls) == 0
    assert kinds(course.next(), []) == ([], None)


def test_a_last_answer_with_outputs(course: Course) -> None:
    """It is a reply, and nothing is waited for but the end."""
    _, reply = kinds(course.next(), [None, None, message(final=True)])
    assert reply["y"].tolist() == [0]
    assert kinds(course.next(), [None]) == (["Read", "Cancel"], None)


def test_a_server_that_marks_nothing(course: Course) -> None:
    """The end of the call is the end of the stream."""
    kinds(course.next(), [None, None, message(final=False)])
    assert kinds(course.next(), [None]) == (["Read", "Cancel"], None)


def test_after_an_error_the_server_ends_first(course: Course, calls: Calls) -> None:
    """The model's last answer is waited for, a moment, before the call is given up."""
    late = DeadlineExceeded("there", found="nothing came")
    results = [None, None, message(final=False, error="no"), message(final=False), late]
    seen, error = kinds(course.next(), results)
    assert seen == ["Open", "Request", "Read", "Read", "Read", "Cancel"]
    assert isinstance(error, InferenceError)
    assert error.found == "no"
    assert in_flight(calls) == 0


def test_cancelled_while_waiting_for_the_end(course: Course, calls: Calls) -> None:
    """The call is given up all the same."""
    cancelled = asyncio.CancelledError()
    seen, error = kinds(course.next(), [None, None, message(final=False, error="no"), cancelled])
    assert seen == ["Open", "Request", "Read", "Read", "Cancel"]
    assert error is cancelled
    assert in_flight(calls) == 0


@pytest.mark.parametrize("at", range(3))
def test_cancelled_on_the_way(course: Course, calls: Calls, at: int) -> None:
    """Wherever the task is, what was opened is given up at once."""
    cancelled = asyncio.CancelledError()
    seen, error = kinds(course.next(), [None] * at + [cancelled])
    assert seen == ["Open", "Request", "Read"][: at + 1] + ["Cancel"] * (at > 0)
    assert error is cancelled
    assert in_flight(calls) == 0


def test_closed_while_it_is_opened(course: Course, calls: Calls) -> None:
    """Nothing is asked of a stream that nobody wants any more."""
    steps = course.next()
    assert type(next(steps)).__name__ == "Open"
    assert kinds(course.close(), []) == ([], None)
    step = steps.send(STREAM)
    assert type(step).__name__ == "Cancel"
    assert in_flight(calls) == 0


def test_an_answer_that_cannot_be_read(course: Course) -> None:
    """Bytes that are no message, and a message without anything, are the server's error."""
    for bad in (b"\xff\xff", b""):
        fresh = Course(course._calls, course._ask)
        _, error = kinds(fresh.next(), [None, None, bad])
        assert isinstance(error, InferenceError)
