"""The pause after something has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonkit.client.cache.redis_store import RedisBackoff

if TYPE_CHECKING:
    from tests.client.cache.conftest import Clock


def test_pauses_grow_and_end(clock: Clock) -> None:
    """0.1 s after the first failure, doubling to 5 s; one success ends it."""
    backoff = RedisBackoff(clock)
    pauses = []
    for _ in range(8):
        assert backoff.may_try()
        backoff.failed(clock())
        pauses.append(backoff.pause_s)
        clock.turn(backoff.pause_s - 0.001)
        assert not backoff.may_try()
        clock.turn(0.002)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.worked()
    assert backoff.may_try()
    assert backoff.pause_s == 0


def test_one_caller_tries_at_the_end_of_a_pause(clock: Clock) -> None:
    """The others stay away while it tries, and one of them may try if it never says how it went."""
    backoff = RedisBackoff(clock)
    backoff.failed(clock())
    clock.turn(0.11)
    assert [backoff.may_try() for _ in range(3)] == [True, False, False]
    clock.turn(0.11)
    assert backoff.may_try()


def test_failures_of_one_outage_count_once(clock: Clock) -> None:
    """Ten tries that began together and failed together lengthen the pause once."""
    backoff = RedisBackoff(clock)
    began = clock()
    clock.turn(0.05)
    news = [backoff.failed(began) for _ in range(10)]
    assert news == [True] + [False] * 9
    assert backoff.pause_s == 0.1
