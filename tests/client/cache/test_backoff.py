"""How long something that failed is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonkit.client.cache.backoff import Rest

if TYPE_CHECKING:
    from tests.client.cache.conftest import Clock


def test_pauses_grow_and_end(clock: Clock) -> None:
    """0.1 s after the first failure, doubling to 5 s; one success ends it."""
    rest = Rest(clock)
    pauses = []
    for _ in range(8):
        assert rest.may_try()
        rest.failed(clock())
        pauses.append(rest.pause_s)
        clock.turn(rest.pause_s - 0.001)
        assert not rest.may_try()
        clock.turn(0.002)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert rest.worked()
    assert rest.may_try()
    assert rest.pause_s == 0


def test_one_caller_tries_at_the_end_of_a_pause(clock: Clock) -> None:
    """The others stay away while it tries, and one of them may try if it never says how it went."""
    rest = Rest(clock)
    rest.failed(clock())
    clock.turn(0.11)
    assert [rest.may_try() for _ in range(3)] == [True, False, False]
    clock.turn(0.11)
    assert rest.may_try()


def test_failures_of_one_outage_count_once(clock: Clock) -> None:
    """Ten tries that began together and failed together lengthen the pause once."""
    rest = Rest(clock)
    began = clock()
    clock.turn(0.05)
    news = [rest.failed(began) for _ in range(10)]
    assert news == [True] + [False] * 9
    assert rest.pause_s == 0.1
