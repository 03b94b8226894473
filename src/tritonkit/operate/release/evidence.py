"""Evidence against a candidate that stays valid even if it is checked after every request.

An e-value is the ratio of two likelihoods of the observation: if the candidate is worse, over if it is as good as
wanted. If it is as good, the chance that the e-value ever reaches 1/a is at most a, however often it is checked
(Ville's inequality; Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid
inference", Statistical Science 38(4)). An ordinary test, repeated every second, would sooner or later call anything
worse.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["ENOUGH", "AgainstRule", "AgainstShare", "AgainstStable"]

ENOUGH = 1000.0
"""The e-value at which a release is rolled back. A candidate that meets a rule reaches it in at most one of
1000 releases."""
_TIMES = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Factors by which the candidate may be worse; the mean of their e-values is an e-value too, and needs no guess."""

_MOMENTS = 60
"""Number of moments, half a minute in all, that decide whether the stable version breaks a rule."""


@dataclass
class AgainstShare:
    """Whether the share of the candidate's requests that are bad is above a limit.

    Args:
        limit: the largest acceptable share, above 0 and below 1.
    """

    limit: float
    bad: int = 0
    requests: int = 0

    def add(self, bad: int, requests: int) -> None:
        """Count more requests of the candidate's."""
        self.bad, self.requests = self.bad + bad, self.requests + requests

    @property
    def value(self) -> float:
        """The e-value of all requests so far."""
        good = self.requests - self.bad
        shares = [min(self.limit * times, (1 + self.limit) / 2) for times in _TIMES]
        return _mean_of(
            [
                self.bad * math.log(share / self.limit) + good * math.log((1 - share) / (1 - self.limit))
                for share in shares
            ]
        )


@dataclass
class AgainstStable:
    """Whether the candidate's requests are bad more often than those that went to the stable version meanwhile.

    If both are equally good, a bad request is the candidate's with the same chance as any request of that moment.
    """

    _logs: list[float] = field(default_factory=lambda: [0.0] * len(_TIMES))

    def add(self, bad: tuple[int, int], requests: tuple[int, int]) -> None:
        """Count more requests, of the candidate and of the stable version, from the same moment."""
        candidate, stable = requests
        if not (candidate and stable):
            return
        share = candidate / (candidate + stable)
        for place, times in enumerate(_TIMES):
            worse = times * share / (times * share + 1 - share)
            self._logs[place] += bad[0] * math.log(worse / share)
            self._logs[place] += bad[1] * math.log((1 - worse) / (1 - share))

    @property
    def value(self) -> float:
        """The e-value of all requests so far."""
        return _mean_of(self._logs)


@dataclass
class AgainstRule:
    """Whether the candidate breaks a rule that the stable version keeps.

    A caller can make requests late or failed at will: with the heaviest that a model takes, or with impossible
    deadlines. They go to both versions at random. While the stable version breaks the rule, the candidate is therefore
    compared with that version only; requests of that time say nothing about the limit.

    Args:
        limit: the largest acceptable share, above 0 and below 1.
    """

    limit: float
    _share: AgainstShare = field(init=False)
    _more: AgainstStable = field(default_factory=AgainstStable)
    _stable: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MOMENTS))

    def __post_init__(self) -> None:
        self._share = AgainstShare(self.limit)

    def add(self, bad: tuple[int, int], requests: tuple[int, int]) -> None:
        """Count more requests, of the candidate and of the stable version, from the same moment."""
        self._stable.append((bad[1], requests[1]))
        if sum(failures for failures, _ in self._stable) > self.limit * sum(count for _, count in self._stable):
            self._more.add(bad, requests)
        else:
            self._share.add(bad[0], requests[0])

    @property
    def value(self) -> float:
        """The larger e-value of the two."""
        return max(self._share.value, self._more.value)


def _mean_of(logs: Sequence[float]) -> float:
    """The mean of numbers given by their logarithms; infinite rather than an overflow."""
    top = max(logs)
    if top > 600:
        return math.inf
    return math.exp(top) * sum(math.exp(log - top) for log in logs) / len(logs)
