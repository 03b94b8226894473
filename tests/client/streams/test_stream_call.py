"""The steps of a stream, without doing them: what is done after what."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tests.client.streams.conftest import Server
from tritonkit.client.core import Core
from tritonkit.client.policy import Policy
from tritonkit.client.request import InferRequest
from tritonkit.client.steps import run_blocking
from tritonkit.client.streams.stream_call import StreamCall
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable
from tritonkit.testing import FakeModel

REQUEST = ["stream", "write", "end"]


class Silent:
    """A stream whose methods are named by steps and never called."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(__name__=name)


@pytest.fixture
def core(models: dict[str, FakeModel]) -> Core:
    """The inside of a client that knows its model."""
    server = Server(models)
    core = Core(Policy(["memory"], lambda *_: server), 10.0)
    run_blocking(core.signature(("count", "")))
    return core


def stream_of(core: Core) -> StreamCall:
    """A stream of it."""
    return StreamCall(core, InferRequest(("count", ""), {"x": [1, 0, -1]}))


@pytest.fixture
def call(core: Core) -> StreamCall:
    """One stream."""
    return stream_of(core)


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
    """Do the steps with these results, errors raised; the methods called, and what came out."""
    names, give = [], iter(results)
    try:
        step = next(steps)
        while True:
            names.append(step.method.__name__)
            result = next(give, None)
            step = (
                steps.throw(result)
                if isinstance(result, BaseException)
                else steps.send(Silent() if names[-1] == "stream" else result)
            )
    except StopIteration as stop:
        return names, stop.value
    except BaseException as error:
        return names, error


def in_flight(core: Core) -> int:
    """Servers that are held."""
    return sum(replica.in_flight for replica in core.policy.pool.replicas)


def test_a_whole_stream(call: StreamCall, core: Core) -> None:
    """One request; after the mark of the last answer the server's own end is read."""
    names, reply = kinds(call.next(), [None, None, None, message(final=False)])
    assert names == [*REQUEST, "read"]
    assert reply["y"].tolist() == [0]
    assert call.under_way
    assert in_flight(core) == 1
    names, reply = kinds(call.next(), [message(final=True, outputs=False), None])
    assert names == ["read", "read", "cancel"]
    assert reply is None
    assert in_flight(core) == 0
    assert kinds(call.next(), []) == ([], None)


def test_a_last_answer_with_outputs(call: StreamCall) -> None:
    """It is a reply, and nothing is waited for but the end."""
    _, reply = kinds(call.next(), [None, None, None, message(final=True)])
    assert reply["y"].tolist() == [0]
    assert kinds(call.next(), [None]) == (["read", "cancel"], None)


def test_a_server_that_marks_nothing(call: StreamCall) -> None:
    """The end of the call is the end of the stream."""
    kinds(call.next(), [None, None, None, message(final=False)])
    assert kinds(call.next(), [None]) == (["read", "cancel"], None)


def test_after_an_error_the_server_ends_first(call: StreamCall, core: Core) -> None:
    """The model's last answer is waited for, a moment, before the call is given up."""
    late = DeadlineExceeded("there", found="nothing came")
    results = [None, None, None, message(final=False, error="no"), message(final=False), late]
    names, error = kinds(call.next(), results)
    assert names == [*REQUEST, "read", "read", "read", "cancel"]
    assert isinstance(error, InferenceError)
    assert error.found == "no"
    assert in_flight(core) == 0


@pytest.mark.parametrize("before", ["", "in ensemble 'e', ", "the request failed, message: "])
def test_a_model_whose_process_has_died_is_unavailable(call: StreamCall, core: Core, before: str) -> None:
    """The server rests, as in a unary call, and the call waits a moment for the end of the stream."""
    words = f"{before}Stub process 'count_0_0' is not healthy."
    results = [None, None, None, message(final=False, error=words), None]
    names, error = kinds(call.next(), results)
    assert names == [*REQUEST, "read", "read", "cancel"]
    assert isinstance(error, ServerUnavailable)
    assert error.found == words
    assert not error.unprocessed
    assert in_flight(core) == 0


def test_a_language_model_that_ends_an_overdue_request(call: StreamCall, core: Core) -> None:
    """The server's clock and the caller's race; the error is the same whichever is first."""
    words = "UNAVAILABLE: the request's timeout has expired"
    results = [None, None, None, message(final=False, error=words), None]
    _, error = kinds(call.next(), results)
    assert isinstance(error, DeadlineExceeded)
    assert error.found == words
    assert in_flight(core) == 0


def test_cancelled_while_waiting_for_the_end(call: StreamCall, core: Core) -> None:
    """The call is given up all the same."""
    cancelled = asyncio.CancelledError()
    names, error = kinds(call.next(), [None, None, None, message(final=False, error="no"), cancelled])
    assert names == [*REQUEST, "read", "read", "cancel"]
    assert error is cancelled
    assert in_flight(core) == 0


@pytest.mark.parametrize("at", range(4))
def test_cancelled_on_the_way(call: StreamCall, core: Core, at: int) -> None:
    """At any point of the task, everything that was opened is given up immediately."""
    cancelled = asyncio.CancelledError()
    names, error = kinds(call.next(), [None] * at + [cancelled])
    assert names == [*REQUEST, "read"][: at + 1] + ["cancel"] * (at > 0)
    assert error is cancelled
    assert in_flight(core) == 0


def test_closed_while_it_is_opened(call: StreamCall, core: Core) -> None:
    """Nothing is asked of a stream that nobody wants any more."""
    steps = call.next()
    assert next(steps).method.__name__ == "stream"
    assert kinds(call.close(), []) == ([], True)
    step = steps.send(Silent())
    assert step.method.__name__ == "cancel"
    assert in_flight(core) == 0


def test_an_answer_that_cannot_be_read(core: Core) -> None:
    """Bytes that are no message, and a message without anything, are the server's error."""
    for bad in (b"\xff\xff", b""):
        fresh = stream_of(core)
        _, error = kinds(fresh.next(), [None, None, None, bad])
        assert isinstance(error, InferenceError)
