"""When a silent peer is asked for a sign of life, and when not."""

from __future__ import annotations

from tritonkit.wire.http2.keepalive import PING_AFTER_S, PING_INTERVAL_S, PING_TIMEOUT_S, Keepalive


def test_a_peer_that_speaks_is_left_alone() -> None:
    """Something came since."""
    keepalive = Keepalive(0.0)
    keepalive.heard(100.0)
    assert not keepalive.ping_due(100.0 + PING_AFTER_S - 1)
    assert not keepalive.timed_out(100.0 + PING_AFTER_S - 1)


def test_a_silent_peer_is_asked_once_and_then_given_up() -> None:
    """It has a while for its answer."""
    keepalive = Keepalive(0.0)
    assert keepalive.ping_due(PING_AFTER_S)
    assert not keepalive.ping_due(PING_AFTER_S + 1)
    assert not keepalive.timed_out(PING_AFTER_S + PING_TIMEOUT_S - 1)
    assert keepalive.timed_out(PING_AFTER_S + PING_TIMEOUT_S)


def test_a_peer_that_answered_is_not_asked_again_soon() -> None:
    """Triton ends connections that ask more often."""
    keepalive = Keepalive(0.0)
    assert keepalive.ping_due(PING_AFTER_S)
    keepalive.heard(PING_AFTER_S + 1)
    assert not keepalive.timed_out(10 * PING_AFTER_S)
    assert not keepalive.ping_due(PING_AFTER_S + PING_INTERVAL_S - 1)
    assert keepalive.ping_due(PING_AFTER_S + PING_INTERVAL_S)
