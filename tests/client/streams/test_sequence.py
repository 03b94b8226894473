"""Sequences: what the server is sent, where, and what happens when calls fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.client.streams.conftest import Server
from tritonkit.client import AsyncClient, Client, Limit
from tritonkit.client.core import Core
from tritonkit.client.observers.events import CallEvent, Observers
from tritonkit.client.policy import Breaker, Policy
from tritonkit.client.streams import AsyncSequence, Sequence
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput, Overloaded, ServerUnavailable, UsageError
from tritonkit.testing import AsyncMemoryTransport, FakeModel

ONE: Mapping[str, Any] = {"x": ("FP32", [1])}
KEY = ("sum", "")


def model(function: Any = lambda inputs: {"x": inputs["x"]}) -> dict[str, FakeModel]:
    """A model that gives its input back."""
    return {"sum": FakeModel(ONE, ONE, function, max_batch_size=0)}


@pytest.fixture
def server() -> Server:
    """A server that keeps its requests."""
    return Server(model())


@pytest.fixture
def core(server: Server) -> Core:
    """The inside of a client of it."""
    return Core(Policy(["memory"], lambda *_: server), 10.0)


def flags(server: Server) -> list[str]:
    """A record of each request: s for the start, e for the end, and its input."""
    return [
        "s" * request.get("sequence_start", False) + "e" * request.get("sequence_end", False) + f"{request['x'][0]:.0f}"
        for request in server.requests
    ]


def test_the_first_starts_and_the_last_ends(server: Server, core: Core) -> None:
    """One id for all, drawn at random, and a whole reply for each."""
    with Sequence(core, KEY) as sequence:
        reply = sequence.predict(x=[1])
        sequence.predict(inputs={"x": [2]}, outputs=["x"])
        sequence.predict(x=[3], last=True)
    assert flags(server) == ["s1", "2", "e3"]
    assert {request["sequence_id"] for request in server.requests} == {sequence.correlation_id}
    assert 0 < sequence.correlation_id < 2**63  # type: ignore[operator]
    assert sequence.correlation_id != Sequence(core, KEY).correlation_id
    assert (reply["x"].tolist(), reply.model, reply.version) == ([1], "sum", "1")
    assert (reply.endpoint, reply.attempts, reply.origin) == ("memory", 1, "server")
    assert reply.timing.total_s >= reply.timing.wait_s > 0


def test_one_call_may_be_all(server: Server, core: Core) -> None:
    """It starts and ends."""
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1], last=True)
    assert flags(server) == ["se1"]


def test_leaving_ends_the_sequence(server: Server, core: Core) -> None:
    """The last inputs are sent again as the end."""
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1])
        sequence.predict(x=[2])
    assert flags(server) == ["s1", "2", "e2"]


def test_inputs_that_were_turned_away_are_not_the_end(server: Server, core: Core) -> None:
    """The end repeats the latest inputs that the model may have seen."""
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1])
        server.errors = [Overloaded("there", found="full")]
        with pytest.raises(Overloaded):
            sequence.predict(x=[2])
    assert flags(server) == ["s1", "2", "e1"]


def test_an_error_in_the_block_ends_the_sequence(server: Server, core: Core) -> None:
    """The caller's exception goes on its way, and the server's slot is free."""

    def program() -> None:
        with Sequence(core, KEY) as sequence:
            sequence.predict(x=[7])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert flags(server) == ["s7", "e7"]


def test_a_sequence_without_calls_sends_nothing(server: Server, core: Core) -> None:
    """Nor does one whose only call was refused here or turned away there."""
    with Sequence(core, KEY):
        pass
    with Sequence(core, KEY) as sequence, pytest.raises(InvalidInput):
        sequence.predict(x=[1, 2])
    server.errors = [Overloaded("there", found="full")]
    with Sequence(core, KEY) as sequence, pytest.raises(Overloaded):
        sequence.predict(x=[1])
    assert flags(server) == ["s1"]  # never twice
    assert [replica.in_flight for replica in core.policy.pool.replicas] == [0]


@pytest.mark.parametrize("correlation_id", [1, 2**63 - 1, "a", "é" * 64])
def test_ids_may_be_given(server: Server, core: Core, correlation_id: int | str) -> None:
    """Whole numbers, and text."""
    with Sequence(core, KEY, correlation_id) as sequence:
        sequence.predict(x=[1], last=True)
    assert server.requests[0]["sequence_id"] == correlation_id


@pytest.mark.parametrize("correlation_id", [0, -1, 2**63, True, 1.5, "", "é" * 65])
def test_bad_ids_are_refused(core: Core, correlation_id: Any) -> None:
    """0 means none to Triton, and long texts are cut nowhere."""
    with pytest.raises(UsageError, match="correlation_id="):
        Sequence(core, KEY, correlation_id)


def test_calls_outside_of_the_block_are_refused(server: Server, core: Core) -> None:
    """Before, after the last, after the block; and a sequence begins once."""
    sequence = Sequence(core, KEY)
    with pytest.raises(UsageError, match="outside of its `with` block"):
        sequence.predict(x=[1])
    with sequence:
        sequence.predict(x=[1], last=True)
        with pytest.raises(UsageError, match="has ended"):
            sequence.predict(x=[1])
    with pytest.raises(UsageError, match="has ended"):
        sequence.predict(x=[1])
    with pytest.raises(UsageError, match="has ended"), sequence:
        pass
    assert flags(server) == ["se1"]


def test_the_start_is_said_until_it_was_heard(server: Server, core: Core) -> None:
    """A first call without an answer does not count as the start; Triton takes a second one."""
    server.errors = [DeadlineExceeded("there", found="late"), InferenceError("there", found="no")]
    with Sequence(core, KEY) as sequence:
        for kind in (DeadlineExceeded, InferenceError):
            with pytest.raises(kind):
                sequence.predict(x=[1])
        sequence.predict(x=[1])
        server.errors = [InferenceError("there", found="no")]
        with pytest.raises(InferenceError):
            sequence.predict(x=[2])
        sequence.predict(x=[3], last=True)
    assert flags(server) == ["s1", "s1", "s1", "2", "e3"]


def test_a_lost_server_is_the_end(server: Server, core: Core) -> None:
    """Its state is gone: nothing is repeated, no end is sent, and calls are refused."""
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1])
        server.errors = [ServerUnavailable("there", found="the connection broke")]
        with pytest.raises(ServerUnavailable):
            sequence.predict(x=[2])
        with pytest.raises(UsageError, match="lost its server"):
            sequence.predict(x=[3])
    assert flags(server) == ["s1", "2"]
    assert [replica.in_flight for replica in core.policy.pool.replicas] == [0]


def test_an_end_that_fails_harms_nobody(server: Server, core: Core, caplog: pytest.LogCaptureFixture) -> None:
    """The answers are there; a warning says that the server keeps the state for a while."""
    with caplog.at_level(logging.WARNING, "tritonkit"), Sequence(core, KEY) as sequence:
        sequence.predict(x=[1])
        server.lost = True
    assert "the end of a sequence was not accepted" in caplog.text


def test_one_server_for_a_whole_sequence() -> None:
    """Others take other sequences; before a first answer a call may be made again elsewhere."""
    servers = {name: Server(model(), name) for name in ("a:1", "b:1", "c:1")}
    core = Core(Policy(list(servers), lambda address, _: servers[address]), 10.0)
    places = set()
    for _ in range(12):
        with Sequence(core, KEY) as sequence:
            places.add(tuple({sequence.predict(x=[n]).endpoint for n in range(4)}))
    assert {len(place) for place in places} == {1}
    assert len(places) > 1
    for server in servers.values():
        server.errors = [ServerUnavailable("there", found="refused")]
    with Sequence(core, KEY) as sequence:
        for _ in range(3):
            with pytest.raises(ServerUnavailable):
                sequence.predict(x=[1])
        sequence.predict(x=[1], last=True)


def test_a_sequence_may_be_the_probe_of_a_circuit(server: Server) -> None:
    """A server that failed is tried by the sequence's own call, even where one call may try it."""
    now = [100.0]
    breaker = Breaker(window_s=10, least_calls=2, failure_rate=0.5, open_s=2, probes=1)
    core = Core(Policy(["memory"], lambda *_: server, None, breaker, clock=lambda: now[0]), 1e6)
    server.errors = [ServerUnavailable("there", found="refused")] * 2
    for _ in range(2):
        with Sequence(core, KEY) as sequence, pytest.raises(ServerUnavailable):
            sequence.predict(x=[1], timeout_s=1e5)
    now[0] += 3
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1], last=True, timeout_s=1e5)


def test_two_calls_at_once_are_refused() -> None:
    """Their order would be chance."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(inputs: Any) -> Any:
        inside.set()
        go_on.wait(10)
        return {"x": inputs["x"]}

    server = Server(model(slow))
    with Sequence(Core(Policy(["memory"], lambda *_: server), 10.0), KEY) as sequence:
        first = threading.Thread(target=lambda: sequence.predict(x=[1]))
        first.start()
        assert inside.wait(10)
        with pytest.raises(UsageError, match="another of its calls is under way"):
            sequence.predict(x=[2])
        go_on.set()
        first.join()
        sequence.predict(x=[3], last=True)
    assert flags(server) == ["s1", "e3"]


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []

    def started(self, model: str) -> None:
        """Nothing."""

    def headers(self, token: None) -> tuple[tuple[str, str], ...]:
        """None."""
        return ()

    def finished(self, token: None, event: CallEvent) -> None:
        """Keep."""
        self.events.append(event)


def test_observers_see_each_call(server: Server) -> None:
    """One event a call, and none for an end that was sent at leaving."""
    observer = Seen()
    core = Core(Policy(["memory"], lambda *_: server), 10.0, observers=Observers([observer]))
    with Sequence(core, KEY) as sequence:
        sequence.predict(x=[1])
        with pytest.raises(InvalidInput):
            sequence.predict(x=[1, 2])
    assert [event.error for event in observer.events] == [None, "InvalidInput"]
    assert flags(server) == ["s1", "e1"]


def test_calls_take_places_in_the_limit(server: Server) -> None:
    """A sequence holds none between its core."""
    with (
        Client(transport=server, limit=Limit(in_flight=1, waiting=0)) as client,
        client.model("sum").sequence() as one,
        client.model("sum").sequence() as other,
    ):
        for sequence in (one, other, one):
            np.testing.assert_array_equal(sequence.predict(x=[4])["x"], [4])


def test_a_closed_client(server: Server) -> None:
    """A call is refused, and leaving afterwards is quiet but for a warning."""
    client = Client(transport=server)
    with client.model("sum").sequence() as sequence:
        sequence.predict(x=[1])
        client.close()
        with pytest.raises(UsageError, match="closed"):
            sequence.predict(x=[2])
    assert flags(server) == ["s1"]


def test_sequences_of_tasks() -> None:
    """The same awaited; cancelling a call leaves the end to the block."""
    heard: list[float] = []

    def function(inputs: Any) -> Any:
        heard.append(inputs["x"].item())
        return {"x": inputs["x"]}

    async def program() -> None:
        async with AsyncClient(transport=AsyncMemoryTransport(model(function))) as client:
            summing = await client.model("sum")
            async with summing.sequence(5) as sequence:
                assert isinstance(sequence, AsyncSequence)
                assert sequence.correlation_id == 5
                assert (await sequence.predict(x=[1]))["x"].item() == 1
                results = await asyncio.gather(sequence.predict(x=[2]), sequence.predict(x=[3]), return_exceptions=True)
                assert isinstance(results[1], UsageError)
            assert heard == [1, 2, 2]
            async with summing.sequence() as sequence:
                await sequence.predict(x=[8], last=True)
                with pytest.raises(UsageError, match="has ended"):
                    await sequence.predict(x=[9])
        assert heard == [1, 2, 2, 8]

    asyncio.run(program())
