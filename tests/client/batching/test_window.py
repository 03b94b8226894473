"""The time for which a batch stays open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tritonkit.client.batching import Adaptive
from tritonkit.client.batching.window import BatchWindow

FAR = 1e6


def crowd(count: int = 8, gap_s: float = 0.0001, **settings: Any) -> tuple[BatchWindow, float]:
    """A window that twice saw `count` callers whose batch took 3 ms, and the moment after it."""
    window = BatchWindow(Adaptive(**{"in_flight": 1} | settings), 64)
    now = 0.0
    for _ in range(2):
        for present in range(1, count + 1):
            now += gap_s
            window.arrived(now, present)
        now += 0.003
        window.landed(now, 0.003, 0, 0)
    return window, now


def test_somebody_who_calls_alone_never_waits() -> None:
    """Sequential calls, as fast as possible, are all sent immediately."""
    window = BatchWindow(Adaptive(min_wait_ms=5), 64)
    for turn in range(50):
        now = turn * 0.001
        window.arrived(now, 1)
        assert window.hold_s(now, 1, 1, now, FAR) <= 0
        window.landed(now + 0.0005, 0.0005, 0, 0)


def test_the_first_of_a_crowd_waits_for_the_rest_of_it() -> None:
    """Eight were there a moment ago: the first to come back waits, the eighth makes them leave."""
    window, now = crowd(8)
    for queued in range(1, 8):
        window.arrived(now := now + 0.0001, queued)
        assert 0 < window.hold_s(now, queued, queued, now, FAR) < 0.01
    window.arrived(now, 8)
    assert window.hold_s(now, 8, 8, now, FAR) <= 0


def test_with_two_batches_in_flight_half_of_the_crowd_leaves() -> None:
    """The callers are shared out, so that one batch fills while the other flies."""
    assert crowd(8)[0].share == 8
    assert crowd(8, in_flight=2)[0].share == 4


def test_silence_ends_the_wait_and_is_remembered() -> None:
    """When the others do not come, the one who is there leaves, and does not wait again."""
    window, now = crowd(8)
    window.arrived(now, 1)
    hold = window.hold_s(now, 1, 1, now, FAR)
    assert 0 < hold < 0.0016
    now += hold + 1e-9
    assert window.hold_s(now, 1, 1, now - hold, FAR) <= 0
    assert window.recent_callers == 1
    assert window.hold_s(now, 1, 1, now, FAR) <= 0


def test_nobody_waits_for_callers_slower_than_requests() -> None:
    """If the next caller comes in 4 ms and a request takes 3, waiting is no use."""
    window, now = crowd(8, gap_s=0.004)
    window.arrived(now, 1)
    assert window.hold_s(now, 1, 1, now, FAR) <= 0


def test_the_least_wait_holds_where_others_are_about() -> None:
    """With `min_wait_ms` even a batch of everybody stays open; a full one leaves."""
    window, now = crowd(8, min_wait_ms=4)
    window.arrived(now, 8)
    assert window.hold_s(now, 8, 8, now, FAR) == pytest.approx(0.004)
    assert window.hold_s(now, 64, 64, now, FAR) <= 0


def test_the_longest_wait_is_what_the_target_leaves() -> None:
    """10 ms less the 3 ms that a request takes; a tenth of its time if it takes longer than that."""
    assert crowd(8)[0].longest_s == pytest.approx(0.007)
    assert crowd(8, target_latency_ms=2)[0].longest_s == pytest.approx(0.0003)
    assert crowd(8, max_wait_ms=1)[0].longest_s == pytest.approx(0.001)


def test_a_crowd_that_went_away_is_forgotten() -> None:
    """Some landings after it left, nobody is waited for."""
    window, now = crowd(40)
    for _ in range(4):
        window.arrived(now := now + 0.004, 1)
        window.landed(now := now + 0.003, 0.003, 0, 0)
    assert window.recent_callers == 1


def test_a_pause_does_not_slow_the_mean_for_long() -> None:
    """After a minute without a call, a new crowd is seen as one within a few arrivals."""
    window, now = crowd(8)
    window.arrived(now := now + 60, 1)
    for present in range(2, 12):
        window.arrived(now := now + 0.0001, present)
    assert window.gap_s < window.longest_s


@given(
    steps=some.lists(some.tuples(some.floats(0, 0.1), some.integers(1, 200)), min_size=1),
    waited=some.floats(0, 1),
    left=some.floats(-1, 1),
    flying=some.integers(0, 100),
)
def test_no_wait_passes_the_limits(steps: list[tuple[float, int]], waited: float, left: float, flying: int) -> None:
    """Whatever came before, a batch leaves by the longest wait, the deadline, and when full."""
    window, now = crowd(3)
    for gap_s, present in steps:
        window.arrived(now := now + gap_s, present)
    hold = window.hold_s(now, 2, 2 + flying, now - waited, now + left)
    assert hold <= max(0.0, window.longest_s) + 1e-9
    assert hold <= max(0.0, left) + 1e-9
    assert window.hold_s(now, 64, 64 + flying, now, FAR) <= 0
