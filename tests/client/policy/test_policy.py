"""One call: its attempts, its time, and what comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.policy.world import World
from tritonkit.client.policy import Breaker, Hedge, Limit, Policy, Retry
from tritonkit.client.steps import Send, Sleep, run_async
from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    UsageError,
)

THREE = ["a:1", "b:1", "c:1"]
ERRORS = (ServerUnavailable, Overloaded, DeadlineExceeded, InferenceError, ModelNotFound)


def failing(times: int, error: Callable[..., ClientError], seconds: float = 0.001) -> Any:
    """A script that fails this many times, then answers."""
    left = [times]

    def script(server: Any) -> tuple[float, ClientError | None]:
        left[0] -= 1
        return seconds, error(server.address, found="no") if left[0] >= 0 else None

    return script


def test_an_answer_says_how_it_came_about() -> None:
    """The server that answered, the number of messages, and the duration."""
    here = World(["a:1"], failing(1, Overloaded, 0.25))
    sent = here.call()
    assert bytes(sent.body) == b"a:1"
    assert (sent.endpoint, sent.attempts) == ("a:1", 2)
    assert sent.wait_s == pytest.approx(0.5)
    assert sent.queue_s == 0


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded])
def test_what_is_tried_again(error: Any) -> None:
    """A call that may run twice goes again after a lost connection and at a full server."""
    assert World(["a:1"], failing(2, error)).call().attempts == 3


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded])
def test_what_surely_did_not_run_is_tried_again(error: Any) -> None:
    """Any call goes again where the server surely did not begin with it."""
    here = World(["a:1"], failing(2, partial(error, unprocessed=True)))
    assert here.call(idempotent=False).attempts == 3


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded, ModelNotFound])
@pytest.mark.parametrize("options", [{}, {"idempotent": False}])
def test_what_may_have_run_is_not_tried_again(error: Any, options: dict[str, Any]) -> None:
    """Unless it is declared that a call may run twice, a server that may have begun with it is the last."""
    here = World(THREE, failing(1, error))
    deadline = here.clock.now + 10
    with pytest.raises(error):
        here.drive(here.policy.call("ModelInfer", (b"x",), deadline, where="m", **options))
    assert here.messages == 1


def test_after_a_loss_that_may_have_run_nothing_follows_a_refusal() -> None:
    """Sent again after a refusal, then lost: that is the end."""
    errors = [ServerUnavailable("a:1", found="refused", unprocessed=True)]
    errors += [ServerUnavailable("a:1", found="lost")] * 2
    script = iter(errors)
    here = World(["a:1"], lambda _: (0.0, next(script)))
    with pytest.raises(ServerUnavailable, match="lost"):
        here.call(idempotent=False)
    assert here.messages == 2


@pytest.mark.parametrize("error", [DeadlineExceeded, InferenceError, InvalidInput, UsageError])
def test_what_is_never_tried_again(error: Any) -> None:
    """Any other error reaches the caller immediately."""
    here = World(THREE, failing(1, error))
    with pytest.raises(error):
        here.call()
    assert here.messages == 1


def test_a_model_that_one_server_lacks_is_asked_for_elsewhere() -> None:
    """A server that has just started is still loading: the others answer, and it is not preferred for
    saying no so quickly."""

    def loading(server: Any) -> tuple[float, ClientError | None]:
        return 0.01, ModelNotFound(server.address, found="no") if server.address == "a:1" else None

    here = World(THREE, loading)
    assert {here.call().endpoint for _ in range(50)} == {"b:1", "c:1"}
    assert len(here.servers["a:1"].calls) <= 10


def test_a_model_that_no_server_has_is_not_found() -> None:
    """Each is asked once; a single server's word is final."""
    for addresses in (THREE, ["a:1"]):
        here = World(addresses, failing(99, ModelNotFound))
        with pytest.raises(ModelNotFound):
            here.call()
        assert here.messages == len(addresses)


def test_the_last_error_is_raised() -> None:
    """When all attempts failed, the caller gets the last one's error itself."""
    errors = [Overloaded("a:1", found=str(number)) for number in range(3)]
    script = iter(errors)
    here = World(["a:1"], lambda _: (0.0, next(script)))
    with pytest.raises(Overloaded) as caught:
        here.call()
    assert caught.value is errors[2]


def test_pauses_double_and_are_drawn_from_their_whole_range() -> None:
    """Full jitter: each pause lies between 0 and a bound that doubles up to `longest_s`."""
    pauses: dict[int, list[float]] = {}
    for seed in range(200):
        script = failing(5, Overloaded)
        here = World(["a:1"], script, retry=Retry(attempts=6, first_s=0.1, longest_s=0.5))
        here.policy.rng.seed(seed)
        steps = here.steps(100.0)
        step, number = next(steps), 0
        while True:
            if isinstance(step, Sleep):
                number += 1
                pauses.setdefault(number, []).append(step.seconds)
                step = steps.send(None)
            else:
                _, error = step.transport.outcome(step.timeout_s)
                try:
                    step = steps.throw(error) if error else steps.send(memoryview(b""))
                except StopIteration:
                    break
    for number, bound in enumerate((0.1, 0.2, 0.4, 0.5, 0.5), 1):
        assert max(pauses[number]) <= bound
        assert max(pauses[number]) > 0.9 * bound
        assert min(pauses[number]) < 0.1 * bound


def test_no_pause_reaches_past_the_deadline() -> None:
    """If the pause would end after the deadline, the error comes immediately and no token is spent."""
    here = World(["a:1"], failing(9, Overloaded), retry=Retry(first_s=50.0, longest_s=50.0))
    begun = here.clock.now
    tokens = here.policy.budget.tokens
    with pytest.raises(Overloaded):
        here.call(timeout_s=0.01)
    assert here.clock.now < begun + 0.01
    assert here.policy.budget.tokens == tokens


@settings(max_examples=150, deadline=None)
@given(timeout_s=st.floats(0.001, 3), servers=st.integers(1, 3), seed=st.integers(0, 1 << 30), rate=st.floats(0, 1))
def test_the_deadline_is_never_passed(timeout_s: float, servers: int, seed: int, rate: float) -> None:
    """Whatever servers do, no message gets more time than is left, and the call ends in its time."""
    chance = Random(seed)

    def script(server: Any) -> tuple[float, Exception | None]:
        failed = chance.random() < rate
        error = chance.choice(ERRORS)(server.address, found="no") if failed else None
        return chance.uniform(0, 1), error

    here = World(THREE[:servers], script, limit=Limit(2, 50), retry=Retry(attempts=5, first_s=0.5))
    ends: list[tuple[float, float]] = []
    for _ in range(8):
        begun = here.clock.now + chance.uniform(0, 2)
        here.start(
            begun,
            lambda: here.steps(timeout_s),
            lambda _, limit=begun + timeout_s: ends.append((here.clock.now, limit)),
        )
    here.run()
    assert len(ends) == 8
    assert all(moment <= limit + 1e-6 for moment, limit in ends)
    for server in here.made:
        assert all(0 < timeout <= timeout_s + 1e-6 for timeout in server.timeouts)
    assert here.policy.limiter.in_flight == 0
    assert all(replica.in_flight == 0 for replica in here.policy.pool.replicas)


def test_no_time_left_sends_nothing() -> None:
    """A deadline that has passed is an error before anything is sent."""
    here = World(["a:1"], lambda _: (0.0, None))
    with pytest.raises(DeadlineExceeded, match="before the request was sent"):
        here.call(timeout_s=-0.1)
    assert here.messages == 0


def test_a_message_made_for_the_server() -> None:
    """A message may be made when the server is known, again for each attempt, in steps."""
    made: list[tuple[str, float]] = []

    def make(transport: Any, timeout_s: float) -> Any:
        made.append((transport.address, timeout_s))
        yield Sleep(0.5)
        return (transport.address.encode(),)

    here = World(["a:1", "b:1"], failing(1, ServerUnavailable))
    deadline = here.clock.now + 10
    steps = here.policy.call("ModelInfer", make, deadline, where="m", idempotent=True)
    assert here.drive(steps).attempts == 2
    assert {address for address, _ in made} == {"a:1", "b:1"}
    assert made[1][1] < 9.5
    timeouts = [timeout for server in here.made for timeout in server.timeouts]
    assert max(timeouts) == pytest.approx(9.5)


def test_a_stream_counts_as_in_flight_and_is_not_measured() -> None:
    """A server held for a stream has one more under way until the stream is over."""
    here = World(["a:1"], lambda _: (0.0, None))
    stream = here.drive(here.policy.pick(here.clock.now + 1, where="m"))
    replica = here.policy.pool.replicas[0]
    assert stream.replica is replica
    assert replica.in_flight == 1
    here.clock.now += 1000
    stream.end(here.clock.now)
    assert replica.in_flight == 0
    assert replica.latency_s == 0


def test_a_stream_that_breaks_counts_against_its_server() -> None:
    """Lost streams open the circuit as lost calls do; a reader's own time limit does not."""
    here = World(["a:1"], lambda _: (0.0, None), breaker=Breaker(least_calls=2))
    for error in (DeadlineExceeded, DeadlineExceeded, ServerUnavailable, ServerUnavailable):
        stream = here.drive(here.policy.pick(here.clock.now + 1, where="m"))
        stream.end(here.clock.now, error("a:1", found="no"))
    with pytest.raises(CircuitOpen):
        here.drive(here.policy.pick(here.clock.now + 1, where="m"))


@pytest.mark.parametrize("signal", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_an_interrupt_is_neither_retried_nor_counted(signal: Any) -> None:
    """An interrupt passes through immediately and does not count against the server."""
    here = World(["a:1"], lambda _: (0.0, None), breaker=Breaker(least_calls=1))
    steps = here.steps()
    assert isinstance(next(steps), Send)
    with pytest.raises(signal):
        steps.throw(signal())
    replica = here.policy.pool.replicas[0]
    assert (replica.in_flight, replica.breaker.state) == (0, "closed")
    assert here.policy.limiter.in_flight == 0


class Forever:
    """A transport of tasks that never answers."""

    address = "a:1"

    async def send(self, *_: Any) -> memoryview:
        """Never."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def close(self) -> None:
        """Nothing to close."""


def test_two_thousand_cancelled_tasks_leave_nothing() -> None:
    """Tasks cancelled under way and in line give back every place and every count."""

    async def story() -> None:
        policy = Policy(["a:1"], lambda *_: Forever(), limit=Limit(100, 5000))
        deadline = time.monotonic() + 60
        tasks = [
            asyncio.create_task(run_async(policy.call("ModelInfer", (), deadline, where="m"))) for _ in range(2000)
        ]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert policy.limiter is not None
        assert policy.limiter.in_flight == policy.limiter.waiting == 0
        assert policy.pool.replicas[0].in_flight == 0
        await policy.aclose()

    asyncio.run(story())


def test_closing_closes_every_transport() -> None:
    """`close` closes all servers' transports; twice is once for the transports that say so."""
    here = World(THREE, lambda _: (0.0, None), hedge=Hedge())
    here.policy.close()
    assert [server.closed for server in here.made] == [1, 1, 1]


def test_everything_off() -> None:
    """Without retry, breaker, hedge and limit a call is one message."""
    here = World(["a:1"], lambda _: (0.0, None), retry=None, breaker=None, limit=None)
    assert here.call().attempts == 1
