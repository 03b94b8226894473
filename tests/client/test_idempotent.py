"""The number of times that a server gets a request it may have worked on: once, unless it may run twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.client.wire.http2.conftest import Peer, play
from tritonkit.client import Adaptive, AsyncClient, Client, Hedge
from tritonkit.client.testing.fake import FakeServer
from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.messages import schema
from tritonkit.errors import (
    ClientError,
    InferenceError,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ServerStopping,
    ServerUnavailable,
    Unsupported,
)
from tritonkit.testing import AsyncMemoryTransport, FakeModel, MemoryTransport

__all__ = ["play"]  # a fixture

VECTOR = {"x": ("FP32", [2])}
X = [1.0, 2.0]
QUEUE_FULL = "[request id: <id_unknown>] Exceeds maximum queue size"


def model(idempotent: bool = False, function: Any = None) -> FakeModel:
    """One that doubles, if it is asked at all."""
    double = function or (lambda inputs: {"y": inputs["x"] * 2})
    outputs: Any = {"y": ("FP32", [2])}
    return FakeModel(VECTOR, outputs, double, idempotent=idempotent, independent_items="declared")


class Wilful:
    """A server that reads each inference whole, counts it as work done, and then follows a script."""

    def __init__(self, act: Callable[[Peer, int], bytes | None], idempotent: bool = False) -> None:
        self.work = 0
        self._act = act
        self._server = FakeServer({"m": model(idempotent)})

    def __call__(self, peer: Peer, _: int) -> None:
        """One connection; an act that gives None ends it."""
        peer.greet()
        paths: dict[int, str] = {}
        bodies: dict[int, bytes] = {}
        while True:
            kind, flags, stream, payload = peer.frame()
            if kind == frames.HEADERS:
                paths[stream] = dict(peer.decoder.decode(payload))[":path"].rpartition("/")[2]
                bodies[stream] = b""
            elif kind == frames.DATA:
                bodies[stream] += payload
            if kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM:
                answer = self._answer(peer, stream, paths[stream], bodies[stream][5:])
                if answer is None:
                    return
                peer.send(answer)

    def _answer(self, peer: Peer, stream: int, method: Any, body: bytes) -> bytes | None:
        if method == "ModelInfer":
            self.work += 1
            return self._act(peer, stream)
        return peer.answer(stream, self._server.answer(method, body))


def dropped(_: Peer, __: int) -> bytes | None:
    """The connection is closed after the work."""
    return None


def said(status: int, message: str) -> Callable[[Peer, int], bytes]:
    """An error in gRPC's words."""
    return lambda peer, stream: peer.headers(
        stream, ends=True, status="200", grpc_status=str(status), grpc_message=message
    )


def refused(_: Peer, stream: int) -> bytes:
    """Not looked at, says HTTP/2."""
    return frames.rst_stream(stream, frames.REFUSED_STREAM)


def calmed(_: Peer, stream: int) -> bytes:
    """A reset that proves nothing."""
    return frames.rst_stream(stream, frames.ENHANCE_YOUR_CALM)


def reset(_: Peer, stream: int) -> bytes:
    """A reset by a server, or its proxy, that ends."""
    return frames.rst_stream(stream, frames.CANCEL)


def gone_away(_: Peer, stream: int) -> bytes:
    """The last call looked at is an earlier one."""
    return frames.frame(frames.GOAWAY, 0, 0, (stream - 2).to_bytes(4) + bytes(4))


def in_threads(address: str, client: dict[str, Any], call: dict[str, Any], times: int = 1) -> Any:
    """Calls of a blocking client, one after the other; the last one's answer."""
    with Client(address, timeout_s=20.0, **client) as made:
        return [made.model("m").predict(x=X, **call) for _ in range(times)][-1]


def in_tasks(address: str, client: dict[str, Any], call: dict[str, Any], times: int = 1) -> Any:
    """Calls of an asyncio client, one after the other; the last one's answer."""

    async def story() -> Any:
        async with AsyncClient(address, timeout_s=20.0, **client) as made:
            model = await made.model("m")
            return [await model.predict(x=X, **call) for _ in range(times)][-1]

    return asyncio.run(story())


OWN: dict[tuple[int, str], type[Exception]] = {
    (5, "row 7 is not found"): InferenceError,
    (5, "in ensemble 'm', row 7 is not found"): InferenceError,
    (5, "Request for unknown model: 'leaf' is not found"): InferenceError,
    (12, "no such color"): InferenceError,
    (14, "the database is away"): Overloaded,
    (14, "in ensemble 'm', the database is away"): Overloaded,
    (14, "Exceeds maximum queue size"): Overloaded,
    (14, "the feature store: connection refused"): Overloaded,
    (14, "too many open connections"): Overloaded,
    (12, "no such method of resampling"): InferenceError,
    (5, "the model of this car is not found"): InferenceError,
}
"""Possible answers of a model: status and words, and the error that callers get."""

KINDS = pytest.mark.parametrize("predict", [in_threads, in_tasks], ids=["threads", "tasks"])
MAYBE = {
    "dropped": (dropped, ServerUnavailable),
    "a proxy's loss": (said(14, "upstream connect error or disconnect"), Overloaded),
    "a step's queue": (said(14, f"in ensemble 'm', {QUEUE_FULL}"), Overloaded),
    "exhausted": (said(8, "too much"), Overloaded),
    "its process died": (said(13, "Stub process 'm_0' is not healthy."), ServerUnavailable),
    "a step's process died": (said(13, "in ensemble 'e', Stub process 'm_0' is not healthy."), ServerUnavailable),
    "calmed": (calmed, Overloaded),
    "cancelled there": (said(1, "CANCELLED"), ServerStopping),
    "reset there": (reset, ServerStopping),
    "a model's own cancellation": (said(1, "the user left"), InferenceError),
    **{f"a model's own words: {words}": (said(*words), error) for words, error in OWN.items()},
}
SURELY_NOT = {
    "refused": refused,
    "gone away": gone_away,
    "queue full": said(14, QUEUE_FULL),
    "a gateway without a replica": said(14, "no healthy upstream"),
    "expired in the queue": said(14, "Request timeout expired"),
    "stopping": said(14, "Server is stopping, scheduler for model has stopped accepting new inference requests"),
    "not loaded yet": said(14, "Request for unknown model: 'm' version 1 is not at ready state"),
}


@KINDS
@pytest.mark.parametrize("how", MAYBE)
def test_work_that_may_have_been_done_is_not_done_again(play: Any, predict: Any, how: str) -> None:
    """A server that has read a request and fails without proof gets it once by default."""
    act, error = MAYBE[how]
    server = Wilful(act)
    with pytest.raises(error) as caught:
        predict(play(server), {}, {})
    assert server.work == 1
    assert not caught.value.unprocessed


@pytest.mark.parametrize("words", OWN)
def test_a_model_s_own_words_come_unchanged(play: Any, words: tuple[int, str]) -> None:
    """No advice about server or port, and no error that says something of them."""
    code, text = words
    with pytest.raises(OWN[words]) as caught:
        in_threads(play(Wilful(said(code, text))), {}, {})
    name = {5: "NOT_FOUND", 12: "UNIMPLEMENTED", 14: "UNAVAILABLE"}[code]
    error = caught.value
    assert type(error) is OWN[words]
    assert isinstance(error, ClientError)
    assert (error.code, error.found) == (name, f"{name}: {text}")
    assert (error.wanted, error.todo) == ("", "")


SERVERS = {
    (5, "Request for unknown model: 'm' is not found"): (ModelNotFound, "`tritonkit models`"),
    (5, "Model m not found"): (ModelNotFound, "`tritonkit models`"),
    (12, "Method not found!"): (Unsupported, "gRPC port"),
    (12, "unknown service inference.GRPCInferenceService"): (Unsupported, "gRPC port"),
    (14, QUEUE_FULL): (Overloaded, "queue limits"),
    (14, f"in ensemble 'm', {QUEUE_FULL}"): (Overloaded, "queue limits"),
    (14, "upstream connect error or disconnect"): (Overloaded, "behind that proxy"),
    (14, "upstream connect error, reset reason: overflow"): (Overloaded, "queue limits"),
    (14, "failed to connect to all addresses; last error: ..."): (Overloaded, "queue limits"),
    (14, ""): (Overloaded, "queue limits"),
}


@pytest.mark.parametrize("words", SERVERS)
def test_a_server_s_words_keep_their_advice(play: Any, words: tuple[int, str]) -> None:
    """Messages of Triton, of other servers of its protocol, and of proxies."""
    kind, advice = SERVERS[words]
    with pytest.raises(kind) as caught:
        in_threads(play(Wilful(said(*words))), {"retry": None}, {})
    assert advice in str(caught.value)


@KINDS
def test_a_gateway_without_a_replica_is_no_full_queue(play: Any, predict: Any) -> None:
    """The error says what is wrong."""
    with pytest.raises(ServerUnavailable, match="which replicas that gateway has"):
        predict(play(Wilful(said(14, "no healthy upstream"))), {}, {})


@KINDS
@pytest.mark.parametrize("how", SURELY_NOT)
def test_work_that_was_surely_not_begun_is_asked_for_again(play: Any, predict: Any, how: str) -> None:
    """A refusal that proves itself is followed by another attempt, for any call, even `False`."""
    server = Wilful(lambda peer, stream: _first(server, SURELY_NOT[how], peer, stream))
    reply = predict(play(server), {}, {"idempotent": False})
    assert reply["y"].tolist() == [X]
    assert server.work == 2


NO_VERSION = "Request for unknown model: 'm' has no available versions"


class Ending:
    """Servers behind one address: the first connection's answers once, and then has unloaded its models."""

    def __init__(self, others_answer: bool, last: Any = None) -> None:
        self.connections = 0
        self.others_answer = others_answer
        self.last = last or said(5, NO_VERSION)

    def __call__(self, peer: Peer, number: int) -> None:
        """One connection."""
        self.connections += 1
        ends = self.connections == 1
        server = Wilful(lambda peer, stream: act(peer, stream))

        def act(peer: Peer, stream: int) -> bytes:
            goes_on = server.work == 1 if ends else self.others_answer
            return _answered(peer, stream) if goes_on else self.last(peer, stream)

        server(peer, number)


@KINDS
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_server_that_ends_is_left_for_another_connection(play: Any, predict: Any, idempotent: bool) -> None:
    """Behind a virtual address a connection stays with its server: a new one leads to another."""
    servers = Ending(others_answer=True)
    reply = predict(play(servers), {}, {"idempotent": idempotent}, times=2)
    assert reply["y"].tolist() == [X]
    assert servers.connections == 2


@KINDS
@pytest.mark.parametrize("how", [said(1, "CANCELLED"), reset], ids=["status", "reset"])
def test_a_call_that_the_server_cancelled_is_made_again_if_it_may_run_twice(play: Any, predict: Any, how: Any) -> None:
    """A server whose time to end is over drops what it has: another connection, another server."""
    servers = Ending(others_answer=True, last=how)
    reply = predict(play(servers), {}, {"idempotent": True}, times=2)
    assert reply["y"].tolist() == [X]
    assert servers.connections == 2


@KINDS
def test_a_model_that_stays_away_is_not_found(play: Any, predict: Any) -> None:
    """The error is the server's word, after the attempts that the settings allow."""
    servers = Ending(others_answer=False)
    with pytest.raises(ModelNotReady, match="no available versions"):
        predict(play(servers), {}, {}, times=2)
    assert servers.connections == 2


@KINDS
def test_a_model_that_was_never_there_is_not_asked_for_again(play: Any, predict: Any) -> None:
    """No answer came before: the first word of a single server is final."""
    server = Wilful(said(5, NO_VERSION))
    with pytest.raises(ModelNotFound):
        predict(play(server), {}, {})
    assert server.work == 1


def _answered(peer: Peer, stream: int) -> bytes:
    response = schema().ModelInferResponse(model_name="m", model_version="1")
    response.outputs.add(name="y", datatype="FP32", shape=[1, 2])
    response.raw_output_contents.append(np.array(X, np.float32).tobytes())
    return peer.answer(stream, response.SerializeToString())


def _first(server: Wilful, act: Any, peer: Peer, stream: int) -> Any:
    return act(peer, stream) if server.work == 1 else _answered(peer, stream)


@KINDS
@pytest.mark.parametrize(
    ("declared", "client", "call", "work"),
    [
        (False, {}, {"idempotent": True}, 3),
        (False, {"idempotent": True}, {}, 3),
        (True, {}, {}, 3),
        (True, {"idempotent": False}, {}, 1),
        (True, {}, {"idempotent": False}, 1),
        (True, {"idempotent": True}, {"idempotent": False}, 1),
        (False, {"idempotent": False}, {"idempotent": True}, 3),
        (True, {"retry": None}, {}, 1),
    ],
)
def test_who_says_that_a_call_may_run_twice(
    play: Any, predict: Any, declared: bool, client: Any, call: Any, work: int
) -> None:
    """The call says, else the client, else the model's configuration; without retries nobody."""
    server = Wilful(dropped, declared)
    with pytest.raises(ServerUnavailable):
        predict(play(server), client, call)
    assert server.work == work


@KINDS
def test_a_call_whose_process_died_is_made_again_if_it_may_run_twice(play: Any, predict: Any) -> None:
    """Triton calls it an internal error; behind a gateway another replica still has its process."""
    act, _ = MAYBE["its process died"]
    server = Wilful(lambda peer, stream: _first(server, act, peer, stream))
    assert predict(play(server), {}, {"idempotent": True})["y"].tolist() == [X]
    assert server.work == 2


def test_an_idle_connection_that_breaks_proves_nothing(play: Any) -> None:
    """Also a request that met a connection long unused may have been read before that was closed."""
    server = Wilful(dropped)
    with Client(play(server), timeout_s=20.0) as client:
        handle = client.model("m")
        time.sleep(1.2)
        with pytest.raises(ServerUnavailable):
            handle.predict(x=X)
    assert server.work == 1


def test_many_and_later_calls_carry_the_declaration(play: Any) -> None:
    """`predict_many`, `try_many` and `submit` hand it on."""
    server = Wilful(dropped)
    with Client(play(server), timeout_s=20.0, breaker=None) as client:
        handle = client.model("m")
        for declared, work in ((None, 1), (True, 3), (False, 1)):
            for call in (
                lambda declared=declared: list(handle.predict_many([X], idempotent=declared)),
                lambda declared=declared: handle.submit(x=X, idempotent=declared).result(),
                lambda declared=declared: [_raised(next(handle.try_many([X], idempotent=declared)))],
            ):
                server.work = 0
                with pytest.raises(ServerUnavailable):
                    call()
                assert server.work == work


def _raised(error: Any) -> None:
    assert isinstance(error, ClientError)
    raise error


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_failed_batch_runs_again_only_if_it_may(idempotent: bool) -> None:
    """Callers that were joined with a bad item: with the declaration each gets an answer of its own."""
    sent = []

    def function(inputs: Any) -> Any:
        sent.extend(inputs["x"][:, 0].tolist())
        time.sleep(0.02)  # meanwhile the others gather
        if 5.0 in inputs["x"][:, 0]:
            raise ValueError("a bad one")
        return {"y": inputs["x"] * 2}

    async def story() -> list[Any]:
        transport = AsyncMemoryTransport({"m": model(idempotent, function)})
        async with AsyncClient(transport=transport, batching=Adaptive(in_flight=1)) as client:
            handle = await client.model("m")
            calls = [handle.predict(x=[float(number), 0.0]) for number in range(8)]
            return await asyncio.gather(*calls, return_exceptions=True)

    ends = asyncio.run(story())
    failed = sum(isinstance(end, InferenceError) for end in ends)
    assert failed == 1 if idempotent else failed > 1
    assert len(sent) > 8 if idempotent else sorted(sent) == list(range(8))


def test_calls_that_may_not_run_twice_go_in_requests_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    """One that may not takes the declaration away from nobody it meets; without one, hedging is said
    to do nothing."""
    with (
        caplog.at_level("INFO", "tritonkit"),
        Client(transport=MemoryTransport({"m": model()}), batching=Adaptive(), hedge=Hedge()) as it,
    ):
        for idempotent in (True, False, None):
            it.model("m").predict(x=X, idempotent=idempotent)
        kinds = [kind[3] for kind in it._core._models["m", ""].batchers._made]
    assert kinds == [True, False]
    assert "its calls are not hedged" in caplog.text


@pytest.mark.parametrize(("text", "declared"), [("true", True), ("True", True), ("false", False), ("yes", False)])
def test_what_a_configuration_declares(text: str, declared: bool) -> None:
    """The one word counts, and not for a model that keeps state."""
    from tritonkit.client.wire.signature import IDEMPOTENT, signature_from

    config = schema().ModelConfigResponse().config
    config.parameters[IDEMPOTENT].string_value = text
    metadata = schema().ModelMetadataResponse(name="m")
    assert signature_from(metadata, config).idempotent is declared
    config.sequence_batching.max_sequence_idle_microseconds = 1
    assert not signature_from(metadata, config).idempotent
