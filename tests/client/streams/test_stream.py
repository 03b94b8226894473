"""Streams of replies for threads, in memory and over gRPC."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.client.conftest import Connect
from tests.client.streams.conftest import Counter, Server
from tests.waiting import eventually
from tritonkit.client import Breaker, CallEvent, Client, Limit, Reply, Retry
from tritonkit.client.core import Core
from tritonkit.client.policy import Policy
from tritonkit.client.request import InferRequest
from tritonkit.client.streams import Stream
from tritonkit.errors import CircuitOpen, DeadlineExceeded, InferenceError, InvalidInput, ServerUnavailable, UsageError
from tritonkit.testing import FakeModel

LONG = [10_000, 0.01, -1]
RETRY = Retry()


def test_replies_come_in_order(client: Client) -> None:
    """There are as many replies as the model sends, each with its model and its time."""
    replies = list(client.model("count").stream(x=[4, 0.01, -1]))
    assert [reply["y"].tolist() for reply in replies] == [[0], [1], [2], [3]]
    last = replies[-1]
    assert (last.model, last.version, last.origin) == ("count", "1", "server")
    assert (last.batch_size, last.attempts) == (1, 1)
    assert last.endpoint == client.address
    assert last.timing.total_s >= sum(reply.timing.wait_s for reply in replies[1:]) > 0


def test_no_reply_at_all(client: Client) -> None:
    """A model that sends nothing gives an iterator that is at its end."""
    assert list(client.model("count").stream(x=[0, 0, -1])) == []


def test_a_model_that_answers_once(client: Client) -> None:
    """Any model can be called over a stream."""
    with client.model("double").stream(x=[1, 2, 3]) as replies:
        assert [reply["y"].tolist() for reply in replies] == [[[2, 4, 6]]]
        assert next(replies, None) is None


def test_a_failure_in_the_middle(client: Client) -> None:
    """Replies before it are there, the error has the model's name and message, then the stream is over."""
    stream = client.model("count").stream(x=[4, 0, 2])
    assert [next(stream)["y"].item(), next(stream)["y"].item()] == [0, 1]
    with pytest.raises(InferenceError, match=r"model count at (.|\n)*told to fail"):
        next(stream)
    assert list(stream) == []
    assert len(list(client.model("count").stream(x=[3, 0, -1]))) == 3


def test_what_does_not_fit_is_not_sent(client: Client, counter: Counter) -> None:
    """Inputs and names of outputs are checked as in `predict`."""
    with pytest.raises(InvalidInput, match="input x"):
        next(client.model("count").stream(x=[1, 2]))
    with pytest.raises(InvalidInput, match="no such output"):
        list(client.model("count").stream(x=[1, 0, -1], outputs=["z"]))
    assert counter.requests == 0


def test_outputs_are_chosen(client: Client) -> None:
    """`outputs` selects the outputs."""
    (reply,) = client.model("count").stream(x=[1, 0, -1], outputs=["y"])
    assert list(reply) == ["y"]


def test_leaving_early_stops_the_model(client: Client, counter: Counter) -> None:
    """The end of the block is the end of the work."""
    with client.model("count").stream(x=LONG) as replies:
        next(replies)
    assert counter.stopped.wait(60)
    assert list(replies) == []


def test_an_error_in_the_block_stops_the_model(client: Client, counter: Counter) -> None:
    """The caller's exception goes on its way."""

    def program() -> None:
        with client.model("count").stream(x=LONG) as replies:
            next(replies)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert counter.stopped.wait(60)


def test_closing_stops_the_model(client: Client, counter: Counter) -> None:
    """Closing twice is closing once, and a closed stream is at its end."""
    stream = client.model("count").stream(x=LONG)
    next(stream)
    stream.close()
    stream.close()
    assert next(stream, None) is None
    assert counter.stopped.wait(60)


def test_a_forgotten_stream_stops_the_model(client: Client, counter: Counter) -> None:
    """`break` in a loop over it is enough."""
    for _ in client.model("count").stream(x=LONG):
        break
    gc.collect()
    assert counter.stopped.wait(60)


def test_a_stream_that_was_never_read_sends_nothing(client: Client, counter: Counter) -> None:
    """Making one is free; closing it too."""
    client.model("count").stream(x=LONG).close()
    assert counter.requests == 0


def test_entering_the_block_sends_the_request(counter: Counter, models: dict[str, FakeModel]) -> None:
    """The model works before the first reply is read; a memory transport waits for the reader."""
    from tests.client.conftest import serving

    with serving(models) as address, Client(address) as client, client.model("count").stream(x=[1, 0, -1]):
        assert eventually(lambda: counter.requests) == 1


def test_time_for_the_whole_stream(client: Client, counter: Counter) -> None:
    """`timeout_s` ends a stream whose replies come in time one by one."""
    replies: list[Reply] = []
    with pytest.raises(DeadlineExceeded, match=r"timeout_s=1") as caught:
        replies.extend(client.model("count").stream(x=LONG, timeout_s=1.0))
    assert f"after {len(replies)} replies" in caught.value.found
    assert replies
    assert counter.stopped.wait(60)


@pytest.mark.slow
def test_time_for_each_reply(connect: Connect, models: dict[str, FakeModel], counter: Counter) -> None:
    """Without `timeout_s` the client's own is for each reply, so a long stream may go on."""
    with connect(models, timeout_s=1.0) as client:
        assert len(list(client.model("count").stream(x=[40, 0.03, -1]))) == 40
        stream = client.model("count").stream(x=[2, 3, -1])
        next(stream)
        with pytest.raises(DeadlineExceeded, match=r"next reply within 1 s"):
            next(stream)
        counter.go_on.set()


def test_a_bad_timeout_is_refused(client: Client) -> None:
    """A stream checks its timeout as other calls do."""
    with pytest.raises(UsageError, match="timeout_s=0"):
        next(client.model("count").stream(x=LONG, timeout_s=0))


def test_a_closed_client_streams_no_more(client: Client) -> None:
    """The error says so, and the stream is over."""
    stream = client.model("count").stream(x=LONG)
    client.close()
    with pytest.raises(UsageError, match="closed"):
        next(stream)
    assert list(stream) == []


def test_two_readers_are_refused(client: Client, counter: Counter) -> None:
    """The second is told, the first reads on."""
    with client.model("count").stream(x=[2, 3, -1]) as stream, ThreadPoolExecutor(1) as pool:
        next(stream)
        first = pool.submit(next, stream)
        eventually(stream._call._reading.locked)
        with pytest.raises(UsageError, match="read it concurrently"):
            next(stream)
        counter.go_on.set()
        assert first.result()["y"].item() == 1


def test_closing_ends_another_threads_wait(client: Client, counter: Counter) -> None:
    """The thread that reads finds the stream at its end."""
    stream = client.model("count").stream(x=[2, 3, -1])
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, stream, None)
        eventually(stream._call._reading.locked)
        stream.close()
        assert reading.result(60) is None
    counter.go_on.set()


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.began = 0
        self.events: list[CallEvent] = []

    def started(self, model: str) -> str:
        """Count."""
        self.began += 1
        return model

    def headers(self, token: str) -> tuple[tuple[str, str], ...]:
        """One header."""
        return (("x-seen", token),)

    def finished(self, token: str, event: CallEvent) -> None:
        """Keep."""
        assert token == event.model
        self.events.append(event)


def test_observers_are_told_once_a_stream(connect: Connect, models: dict[str, FakeModel]) -> None:
    """Whole, left early, failed and refused: one event each, with its error's name."""
    observer = Seen()
    with connect(models, observers=[observer]) as client:
        model = client.model("count")
        list(model.stream(x=[3, 0.01, -1]))
        with model.stream(x=LONG) as replies:
            next(replies)
        with pytest.raises(InferenceError):
            list(model.stream(x=[2, 0, 1]))
        with pytest.raises(InvalidInput):
            list(model.stream(x=[2]))
        assert observer.began == 4
        errors = [event.error for event in observer.events]
        assert errors == [None, None, "InferenceError", "InvalidInput"]
        whole = observer.events[0]
        assert (whole.version, whole.endpoint, whole.attempts) == ("1", client.address, 1)
        assert whole.timing.total_s >= whole.timing.wait_s > 0.02


def test_streams_take_no_place_in_the_limit(connect: Connect, models: dict[str, FakeModel]) -> None:
    """A stream may be open for hours: calls go on meanwhile."""
    with (
        connect(models, limit=Limit(in_flight=1, waiting=0)) as client,
        client.model("count").stream(x=LONG) as one,
        client.model("count").stream(x=LONG) as other,
    ):
        assert next(one)["y"].item() == next(other)["y"].item() == 0
        assert client.model("double").predict(x=[1, 1, 1])["y"].tolist() == [[2, 2, 2]]


def several(models: dict[str, FakeModel], retry: Retry | None = RETRY) -> tuple[Core, list[Server]]:
    """A client's inside with two servers."""
    servers = {name: Server(models, name) for name in ("a:1", "b:1")}
    policy = Policy(list(servers), lambda address, _: servers[address], retry, None)
    return Core(policy, 10.0), list(servers.values())


def lost(unprocessed: bool = True) -> ServerUnavailable:
    """A server that goes away; before it began, unless told otherwise."""
    return ServerUnavailable("there", found="the connection broke", unprocessed=unprocessed)


def stream_of(core: Core, x: Any) -> Stream:
    """A stream of the counter."""
    return Stream(core, InferRequest(("count", ""), {"x": x}))


def test_another_server_is_asked_once(models: dict[str, FakeModel]) -> None:
    """A server lost before it began is replaced; the reply says that it took two attempts."""
    attempts = set()
    for _ in range(20):  # which one is asked first is drawn
        core, servers = several(models)
        servers[0].errors = [lost()]
        replies = list(stream_of(core, [2, 0, -1]))
        assert [reply["y"].item() for reply in replies] == [0, 1]
        assert replies[0].endpoint == "b:1"
        attempts.add(replies[0].attempts)
        assert [replica.in_flight for replica in core.policy.pool.replicas] == [0, 0]
    assert attempts == {1, 2}


def test_a_stream_that_may_have_begun_is_not_repeated(models: dict[str, FakeModel]) -> None:
    """A server lost before its first message may have worked all the same: no other one is asked."""
    core, servers = several(models)
    for server in servers:
        server.errors = [lost(unprocessed=False)]
    with pytest.raises(ServerUnavailable):
        list(stream_of(core, [2, 0, -1]))
    assert sorted(len(server.errors) for server in servers) == [0, 1]


def test_twice_is_enough(models: dict[str, FakeModel]) -> None:
    """Both servers are lost: the second error is the stream's, and a third attempt is not made."""
    core, servers = several(models)
    for server in servers:
        server.errors = [lost(), lost()]
    with pytest.raises(ServerUnavailable):
        list(stream_of(core, [2, 0, -1]))
    assert [len(server.errors) for server in servers] == [1, 1]


def test_no_other_server_without_retries(models: dict[str, FakeModel]) -> None:
    """A client that repeats nothing repeats no stream."""
    core, servers = several(models, retry=None)
    for server in servers:
        server.errors = [lost()]
    with pytest.raises(ServerUnavailable):
        list(stream_of(core, [2, 0, -1]))
    assert sorted(len(server.errors) for server in servers) == [0, 1]


def test_streams_that_find_a_server_back_bring_the_other_calls_back(models: dict[str, FakeModel]) -> None:
    """After an outage the first calls are two streams without end: calls go on once they brought something."""
    server = Server(models)
    breaker = Breaker(least_calls=2, open_s=1.0, probes=2)
    with Client(transport=server, breaker=breaker, retry=None) as client:
        double, count = client.model("double"), client.model("count")
        server.lost = True
        for _ in range(4):  # as many as the answers of learning the models
            with pytest.raises(ServerUnavailable):
                double.predict(x=[1, 1, 1])
        with pytest.raises(CircuitOpen):
            double.predict(x=[1, 1, 1])
        server.lost = False
        time.sleep(1.1)
        with count.stream(x=LONG) as one, count.stream(x=LONG) as other:
            assert next(one)["y"].item() == next(other)["y"].item() == 0
            assert double.predict(x=[1, 1, 1])["y"].tolist() == [[2, 2, 2]]


def test_nothing_is_repeated_after_a_message(
    models: dict[str, FakeModel], counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server lost in the middle is the stream's end, and is no longer held."""
    core, _ = several(models)
    stream = stream_of(core, LONG)
    next(stream)

    def broken(timeout_s: float | None = None) -> None:
        raise lost()

    monkeypatch.setattr(stream._call._stream, "read", broken)
    with pytest.raises(ServerUnavailable):
        next(stream)
    assert list(stream) == []
    assert counter.requests == 1
    assert [replica.in_flight for replica in core.policy.pool.replicas] == [0, 0]


def test_many_streams_at_once(client: Client) -> None:
    """Threads read their own streams over one connection."""

    def read(number: int) -> int:
        return len(list(client.model("count").stream(x=[number, 0.001, -1])))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(read, range(20))) == list(range(20))
