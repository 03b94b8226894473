"""When a silent peer is asked for a sign of life, and when not."""

from __future__ import annotations

from tritonkit.wire.http2.keepalive import PING_AFTER_S, PING_INTERVAL_S, PING_TIMEOUT_S, Keepalive


def test_a_peer_that_speaks_is_left_alone() -> None:
    """Something came since."""
    silence = Keepalive(0.0)
    silence.heard(100.0)
    assert not silence.ping_due(100.0 + PING_AFTER_S - 1)
    assert not silence.timed_out(100.0 + PING_AFTER_S - 1)


def test_a_silent_peer_is_asked_once_and_then_given_up() -> None:
    """It has a while for its answer."""
    silence = Keepalive(0.0)
    assert silence.ping_due(PING_AFTER_S)
    assert not silence.ping_due(PING_AFTER_S + 1)
    assert not silence.timed_out(PING_AFTER_S + PING_TIMEOUT_S - 1)
    assert silence.timed_out(PING_AFTER_S + PING_TIMEOUT_S)


def test_a_peer_that_answered_is_not_asked_again_soon() -> None:
    """Triton ends connections that ask more often."""
    silence = Keepalive(0.0)
    assert silence.ping_due(PING_AFTER_S)
    silence.heard(PING_AFTER_S + 1)
    assert not silence.timed_out(10 * PING_AFTER_S)
    assert not silence.ping_due(PING_AFTER_S + PING_INTERVAL_S - 1)
    assert silence.ping_due(PING_AFTER_S + PING_INTERVAL_S)
