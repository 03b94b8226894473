"""The moments at which a silent peer gets a PING."""

from __future__ import annotations

import pytest

from tritonkit.client.wire.http2.keepalive import (
    PING_AFTER_S,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    QUICK_AFTER_S,
    QUICK_TIMEOUT_S,
    Keepalive,
)

STRIKES = 2
FORGOTTEN_S = 300.0
"""gRPC's servers: of PINGs closer than this to the one before, this many are accepted until an answer is sent."""


def due(keepalive: Keepalive, now: float, quick: bool = False, heads: int = 0) -> bool:
    """Whether a PING goes out now."""
    return keepalive.ping_due(now, heads, quick)


def test_a_peer_that_speaks_is_left_alone() -> None:
    """Something came since."""
    keepalive = Keepalive(0.0)
    keepalive.heard(100.0)
    assert not due(keepalive, 100.0 + PING_AFTER_S - 1)
    assert not keepalive.timed_out(100.0 + PING_AFTER_S - 1)


def test_a_silent_peer_is_asked_once_and_then_given_up() -> None:
    """It has a while for its answer."""
    keepalive = Keepalive(0.0)
    assert due(keepalive, PING_AFTER_S)
    assert not due(keepalive, PING_AFTER_S + 1)
    assert not keepalive.timed_out(PING_AFTER_S + PING_TIMEOUT_S - 1)
    assert keepalive.timed_out(PING_AFTER_S + PING_TIMEOUT_S)


def test_a_peer_that_answered_is_not_asked_again_soon() -> None:
    """Triton ends connections that ask more often."""
    keepalive = Keepalive(0.0)
    assert due(keepalive, PING_AFTER_S)
    keepalive.heard(PING_AFTER_S + 1)
    assert not keepalive.timed_out(10 * PING_AFTER_S)
    assert not due(keepalive, PING_AFTER_S + PING_INTERVAL_S - 1)
    assert due(keepalive, PING_AFTER_S + PING_INTERVAL_S)


def test_where_another_server_is_there_a_silent_one_is_asked_soon_and_left_soon() -> None:
    """All of it well below a second."""
    keepalive = Keepalive(0.0)
    ping_s = QUICK_AFTER_S[0]
    assert not due(keepalive, ping_s - 0.01, quick=True)
    assert due(keepalive, ping_s, quick=True)
    assert not keepalive.silent(ping_s + QUICK_TIMEOUT_S - 0.01, 0.0)
    assert keepalive.silent(ping_s + QUICK_TIMEOUT_S, 0.0)
    assert not keepalive.timed_out(ping_s + QUICK_TIMEOUT_S)
    keepalive.heard(1.0)
    assert not keepalive.silent(2.0, 0.0)


def test_a_peer_far_away_has_the_time_that_its_answer_takes() -> None:
    """Four round trips."""
    keepalive = Keepalive(0.0)
    assert due(keepalive, 1.0, quick=True)
    assert not keepalive.silent(1.0 + QUICK_TIMEOUT_S, 0.5)
    assert keepalive.silent(1.0 + 2.0, 0.5)


def test_what_came_before_a_call_is_no_silence() -> None:
    """The time counts from its beginning."""
    keepalive = Keepalive(0.0)
    keepalive.began = 10.0
    assert not due(keepalive, 10.2, quick=True)
    assert due(keepalive, 10.25, quick=True)


def test_a_peer_whose_system_takes_bytes_is_not_given_up() -> None:
    """The PING is behind a large request."""
    keepalive = Keepalive(0.0)
    keepalive.acknowledged(0.0, 1000)
    assert due(keepalive, 1.0, quick=True)
    for tenth in range(11, 30):
        keepalive.acknowledged(tenth / 10, 1000 * tenth)
        assert not keepalive.silent(tenth / 10 + 0.09, 0.0)
    assert keepalive.silent(2.9 + QUICK_TIMEOUT_S + 0.01, 0.0)


@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.parametrize("answers_each_s", [0.3, 1.7, 7.0, 1000.0])
def test_no_server_of_grpc_takes_offence(answers_each_s: float, crossing: bool) -> None:
    """An hour by the server's count, which starts again with each answer sent; a PING may meet an answer on the way."""
    keepalive = Keepalive(0.0)
    heads, strikes, last, answered = 0, 0, -FORGOTTEN_S, 0.0
    for tick in range(36_000):
        now = tick / 10
        if now - answered >= answers_each_s:
            answered, heads, strikes, last = now, heads + 1, 0, -FORGOTTEN_S
            keepalive.heard(now)
            if crossing:  # it was sent before the answer came
                last = now
        if due(keepalive, now, quick=True, heads=heads):
            # Up to a second late.
            strikes += last > now - 1.0 - FORGOTTEN_S and last > -FORGOTTEN_S
            last = now
            keepalive.heard(now + 0.01)
        assert strikes <= STRIKES
