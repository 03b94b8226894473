"""The e-values: seldom large for a candidate that is as good as wanted, soon for one that is not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tritonkit.operate.release.evidence import ENOUGH, AgainstShare, AgainstStable


def looked_at(share: AgainstShare, bad: np.ndarray) -> float:
    """The largest e-value after any request: a good one only lowers it, so it is read after each bad one."""
    largest = 0.0
    for good in np.diff(np.flatnonzero(bad), prepend=-1) - 1:
        share.add(0, int(good))
        share.add(1, 1)
        largest = max(largest, share.value)
    return largest


def test_a_good_request_lowers_the_value() -> None:
    """However many bad ones came before."""
    for limit in (0.001, 0.05):
        share = AgainstShare(limit, bad=3, requests=10)
        before = share.value
        share.add(0, 1)
        assert share.value < before


def test_it_is_the_mean_likelihood_ratio() -> None:
    """Against fractions, for a share of a tenth: 3 bad ones of 5."""
    share = AgainstShare(0.1)
    share.add(3, 5)
    mean = Fraction(0)
    for times in (1.5, 2, 3, 5, 10, 30, 100):
        worse = min(Fraction(1, 10) * Fraction(times), Fraction(11, 20))
        mean += (worse * 10) ** 3 * ((1 - worse) / Fraction(9, 10)) ** 2 / 7
    assert share.value == pytest.approx(float(mean))


@pytest.mark.parametrize("limit", [0.001, 0.01, 0.05])
def test_a_good_candidate_is_hardly_ever_sent_back(limit: float) -> None:
    """With exactly the share that is allowed, looked at after each of 3000 requests, 300 times over: by Ville's
    inequality the chance that any of them reaches 1000 is 1 in 1000 each."""
    random = np.random.default_rng(4)
    ended = sum(looked_at(AgainstShare(limit), random.random(3000) < limit) >= ENOUGH for _ in range(300))
    assert ended <= 3  # more has a chance of 1 in 5000


def test_a_bad_candidate_is_sent_back_soon() -> None:
    """All late after a few requests; five times as many as allowed after some hundred."""
    share = AgainstShare(0.01)
    for _ in range(4):
        share.add(1, 1)
    assert share.value >= ENOUGH
    random = np.random.default_rng(5)
    five = AgainstShare(0.01)
    assert looked_at(five, random.random(1500) < 0.05) >= ENOUGH


def test_many_requests_do_not_overflow() -> None:
    """A million bad ones are evidence enough."""
    share = AgainstShare(0.001)
    share.add(1_000_000, 1_000_000)
    assert share.value == math.inf
    share = AgainstShare(0.001)
    share.add(0, 1_000_000)
    assert share.value < 1e-6


def test_errors_of_both_are_no_evidence() -> None:
    """A caller that sends nonsense fails at either."""
    random = np.random.default_rng(6)
    more = AgainstStable()
    for _ in range(500):
        requests = (int(random.binomial(20, 0.25)), 15)
        more.add((int(random.binomial(requests[0], 0.2)), int(random.binomial(15, 0.2))), requests)
    assert more.value < ENOUGH
    for _ in range(50):
        more.add((4, 2), (5, 15))
    assert more.value >= ENOUGH


def test_a_moment_without_one_of_the_two_says_nothing() -> None:
    """There is nothing to compare."""
    more = AgainstStable()
    more.add((10, 0), (10, 0))
    more.add((0, 10), (0, 10))
    assert more.value == pytest.approx(1)
