"""When a silent peer is asked for a sign of life, and when not."""

from __future__ import annotations

from tritonkit.wire.http2.silence import ANSWER_S, APART_S, SILENT_S, Silence


def test_a_peer_that_speaks_is_left_alone() -> None:
    """Something came since."""
    silence = Silence(0.0)
    silence.heard(100.0)
    assert not silence.to_ask(100.0 + SILENT_S - 1)
    assert not silence.over(100.0 + SILENT_S - 1)


def test_a_silent_peer_is_asked_once_and_then_given_up() -> None:
    """It has a while for its answer."""
    silence = Silence(0.0)
    assert silence.to_ask(SILENT_S)
    assert not silence.to_ask(SILENT_S + 1)
    assert not silence.over(SILENT_S + ANSWER_S - 1)
    assert silence.over(SILENT_S + ANSWER_S)


def test_a_peer_that_answered_is_not_asked_again_soon() -> None:
    """Triton ends connections that ask more often."""
    silence = Silence(0.0)
    assert silence.to_ask(SILENT_S)
    silence.heard(SILENT_S + 1)
    assert not silence.over(10 * SILENT_S)
    assert not silence.to_ask(SILENT_S + APART_S - 1)
    assert silence.to_ask(SILENT_S + APART_S)
