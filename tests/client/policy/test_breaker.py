"""The circuit of a server: closed, open, half-open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.policy.world import World
from tritonkit.client.policy import Breaker
from tritonkit.client.policy.breaker import CircuitBreaker
from tritonkit.errors import (
    CircuitOpen,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
)

SETTINGS = Breaker(window_s=10, least_calls=4, failure_rate=0.5, open_s=2, probes=2)


def count(circuit: CircuitBreaker, now: float, good: bool) -> None:
    """One call at a moment."""
    circuit.leave(circuit.enter(now), now, good)


def opened() -> CircuitBreaker:
    """A circuit that opened at 0 s."""
    circuit = CircuitBreaker(SETTINGS)
    for _ in range(4):
        count(circuit, 0.0, good=False)
    assert circuit.state == "open"
    return circuit


def test_a_few_failures_conclude_nothing() -> None:
    """Under `least_calls` calls the circuit stays closed, even if all failed."""
    circuit = CircuitBreaker(SETTINGS)
    for _ in range(3):
        count(circuit, 0.0, good=False)
    assert circuit.state == "closed"


def test_the_rate_decides_and_not_the_count() -> None:
    """A hundred failures among a thousand answers open nothing; half of the calls do."""
    circuit = CircuitBreaker(SETTINGS)
    for number in range(1000):
        count(circuit, 0.0, good=number % 10 != 0)
    assert circuit.state == "closed"
    for _ in range(800):
        count(circuit, 0.0, good=False)
    assert circuit.state == "open"


def test_old_failures_are_forgotten() -> None:
    """Failures that fell out of the window count no more."""
    circuit = CircuitBreaker(SETTINGS)
    for _ in range(3):
        count(circuit, 0.0, good=False)
    count(circuit, 11.1, good=False)
    assert circuit.state == "closed"


def test_a_call_noted_late_drops_nothing() -> None:
    """Threads note their calls in any order: a moment before the latest part of the window counts there."""
    circuit = CircuitBreaker(SETTINGS)
    for moment in (1.01, 0.99, 1.02, 0.98):
        count(circuit, moment, good=False)
    assert circuit.state == "open"


def test_an_open_circuit_admits_nothing_until_its_time_is_over() -> None:
    """For `open_s` no call is let through, and it says how long that takes."""
    circuit = opened()
    assert not circuit.admits(1.9)
    assert circuit.reopens_in(0.5) == pytest.approx(1.5)
    assert circuit.admits(2.0)


def test_no_more_probes_than_allowed_at_once() -> None:
    """Half-open, two calls are let through and the third is not, until a place is free again."""
    circuit = opened()
    generation = circuit.enter(2.0)
    circuit.enter(2.0)
    assert not circuit.admits(2.1)
    circuit.leave(generation, 2.2, None, 2.0)  # cancelled: its place is free, nothing was found out
    assert circuit.admits(2.2)
    assert circuit.state == "half-open"


def test_probes_that_are_answered_close_it() -> None:
    """After the required number of answered probes everything is as before."""
    circuit = opened()
    first, second = circuit.enter(2.0), circuit.enter(2.0)
    circuit.leave(first, 2.1, good=True)
    assert circuit.state == "half-open"
    circuit.leave(second, 2.1, good=True)
    assert circuit.state == "closed"


def test_a_failed_probe_opens_it_again() -> None:
    """One failure, and the server is left alone for another `open_s`."""
    circuit = opened()
    first, second = circuit.enter(2.0), circuit.enter(2.0)
    circuit.leave(first, 3.0, good=False)
    assert circuit.state == "open"
    assert not circuit.admits(4.9)
    circuit.leave(second, 3.1, good=True)  # the other probe's late answer changes nothing
    assert circuit.state == "open"


def test_answers_of_calls_from_before_do_not_count() -> None:
    """A call begun while closed and answered while half-open is no probe."""
    circuit = CircuitBreaker(SETTINGS)
    early = [circuit.enter(0.0) for _ in range(4)]
    for _ in range(4):
        count(circuit, 0.0, good=False)
    circuit.enter(2.0)
    for generation in early:
        circuit.leave(generation, 2.1, good=True)
    assert circuit.state == "half-open"


def test_a_probe_that_does_not_end_gives_its_place_to_another() -> None:
    """After `probe_s` one more may be sent in its place; its own end then takes nobody's place away."""
    circuit = opened()
    generation = circuit.enter(2.0)
    circuit.enter(3.0)
    assert circuit.reopens_in(4.0) == pytest.approx(8.0)
    assert not circuit.admits(11.9)
    assert circuit.admits(12.0)
    circuit.enter(12.0)
    assert not circuit.admits(12.5)
    circuit.leave(generation, 12.6, None, 2.0)
    assert not circuit.admits(12.7)
    assert circuit.admits(13.0)


def test_streams_that_go_on_do_not_keep_a_server_out() -> None:
    """Streams that were let through as probes close the circuit with their first answers; a stream that
    brings nothing gives up its place; both still count as under way."""
    broken = [True]

    def script(_: Any) -> tuple[float, Exception | None]:
        return 0.01, ServerUnavailable("a:1", found="no") if broken[0] else None

    for answered in (True, False):
        broken[0] = True
        here = World(["a:1"], script, breaker=SETTINGS, retry=None)
        for _ in range(4):
            with pytest.raises(ServerUnavailable):
                here.call()
        broken[0] = False
        here.clock.now += 2.0
        streams = [here.drive(here.policy.pick(here.clock.now + 1, where="m")) for _ in range(2)]
        with pytest.raises(CircuitOpen):
            here.call()
        if answered:
            for stream in streams:
                stream.answered(here.clock.now)
            assert here.policy.pool.replicas[0].breaker.state == "closed"
        else:
            here.clock.now += SETTINGS.probe_s
        here.call()
        assert here.policy.pool.replicas[0].in_flight == 2
        for stream in streams:
            stream.answered(here.clock.now)
            stream.end(here.clock.now, ServerUnavailable("a:1", found="lost") if answered else None)
        assert here.policy.pool.replicas[0].in_flight == 0


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from([True, False, None])), max_size=200), st.integers(1, 4))
def test_never_more_probes_and_never_a_call_while_open(calls: list[tuple[float, bool | None]], probes: int) -> None:
    """Whatever comes back in whatever order: open lets nothing through, half-open at most `probes` that
    began within `probe_s`."""
    settings = Breaker(5, 3, failure_rate=0.5, open_s=2, probes=probes, probe_s=4)
    circuit = CircuitBreaker(settings)
    now, under_way = 0.0, []
    for pause_s, good in calls:
        now += pause_s
        opens_in = circuit.reopens_in(now)
        if circuit.admits(now):
            assert opens_in == 0
            under_way.append((circuit.enter(now), now))
            if circuit.state == "half-open":
                lately = [began for generation, began in under_way if generation == circuit.generation]
                assert sum(now < began + settings.probe_s for began in lately) <= probes
        else:
            assert opens_in > 0
            if under_way:
                generation, began = under_way.pop(0)
                circuit.leave(generation, now, good, began)
        if len(under_way) > 5:
            generation, began = under_way.pop()
            circuit.leave(generation, now, good, began)


@pytest.mark.parametrize("error", [ServerUnavailable, DeadlineExceeded])
def test_a_dead_server_is_left_alone_and_tried_again(error: Any) -> None:
    """After enough failures calls fail immediately without being sent; a server that is back is found."""
    broken = [True]

    def script(_: Any) -> tuple[float, Exception | None]:
        return 0.01, error("a:1", found="no") if broken[0] else None

    here = World(["a:1"], script, breaker=SETTINGS, retry=None)
    for _ in range(4):
        with pytest.raises(error):
            here.call()
    sent = here.messages
    with pytest.raises(CircuitOpen) as caught:
        here.call()
    assert here.messages == sent
    assert "in 2 s" in caught.value.wanted
    assert "a:1" in caught.value.found
    broken[0] = False
    here.clock.now += 2.0
    here.call()
    here.call()
    assert here.policy.pool.replicas[0].breaker.state == "closed"


@pytest.mark.parametrize("error", [InferenceError, ModelNotFound, InvalidInput, Overloaded])
def test_answers_open_no_circuit(error: Any) -> None:
    """A server that answers is there, also when it says no."""
    here = World(["a:1"], lambda _: (0.01, error("a:1", found="no")), breaker=SETTINGS, retry=None)
    for _ in range(50):
        with pytest.raises(error):
            here.call()
    assert here.messages == 50


def test_a_caller_in_a_hurry_does_not_shut_others_out() -> None:
    """Deadlines missed while other calls are answered say nothing against the server."""
    here = World(["a:1"], lambda _: (0.05, None), breaker=SETTINGS, retry=None)
    ends: list[Any] = []
    for number in range(100):
        here.start(here.clock.now + number * 0.02, lambda: here.steps(1.0), ends.append)
        here.start(here.clock.now + number * 0.02, lambda: here.steps(0.045), ends.append)
        here.start(here.clock.now + number * 0.02, lambda: here.steps(0.045), ends.append)
    here.run()
    assert sum(isinstance(end, DeadlineExceeded) for end in ends) == 200
    assert not any(isinstance(end, CircuitOpen) for end in ends)


def test_only_the_broken_server_is_left_alone() -> None:
    """With one of two servers dead, calls go on at the other and none fails."""

    def script(server: Any) -> tuple[float, Exception | None]:
        dead = server.address == "a:1"
        return 0.01, ServerUnavailable("a:1", found="no") if dead else None

    here = World(["a:1", "b:1"], script, breaker=SETTINGS)
    assert {here.call().endpoint for _ in range(200)} == {"b:1"}
    assert len(here.servers["a:1"].calls) < 10
