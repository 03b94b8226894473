"""Two versions under the same traffic: the counts of each, and the verdict whether the candidate must go."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tritonkit.operate.release.evidence import ENOUGH, AgainstRule, AgainstStable
from tritonkit.operate.release.log import Judged
from tritonkit.operate.release.rules import Rule

__all__ = ["FAILS_MORE", "Judge", "RuleState", "Tally"]

FAILS_MORE = "more errors than the stable version"
"""The rule that always applies; it also counts requests refused for a fault of the caller's."""
_FEW = 50
"""Answers of the stable version that a ratio needs, before division by the square root of 1 - percent / 100."""
_KEPT = 200_000


@dataclass
class Tally:
    """Requests of one version.

    Args:
        ms: the latest latencies of answered requests, in milliseconds.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    ms: list[float] = field(default_factory=list)

    def add(self, judged: Sequence[Judged]) -> None:
        """Count more requests."""
        self.requests += len(judged)
        self.failed += sum(request.failed for request in judged)
        self.refused += sum(request.refused for request in judged)
        self.ms += [request.ms for request in judged if not (request.failed or request.refused)]
        del self.ms[:-_KEPT]

    def percentile(self, percent: float) -> float | None:
        """A percentile of the latency in milliseconds; None if nothing was answered."""
        return float(np.percentile(self.ms, percent)) if self.ms else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`: counts, and milliseconds by percentile."""
        times = {f"p{percent:g}_ms": self.percentile(percent) for percent in (50, 95, 99)}
        return {"requests": self.requests, "failed": self.failed, "refused": self.refused, **times}


@dataclass(frozen=True)
class RuleState:
    """State of one rule.

    Args:
        rule: the rule's text.
        found: the observation, in words.
        evidence: the e-value against the candidate.
    """

    rule: str
    found: str
    evidence: float

    @property
    def broken(self) -> bool:
        """Whether the candidate must be withdrawn."""
        return self.evidence >= ENOUGH

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self) | {"evidence": min(self.evidence, 1e300), "broken": self.broken}


class Judge:
    """Judges the requests of both versions by rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.candidate, self.stable = Tally(), Tally()
        self._more = AgainstStable()
        self._errors = [_Held(rule, rule.limit) for rule in rules if rule.kind == "errors"]
        self._times = [_Times(rule) for rule in rules if rule.kind in ("latency", "ratio")]

    def add(self, judged: Sequence[Judged]) -> None:
        """Take requests of one moment."""
        candidate = [request for request in judged if request.candidate]
        stable = [request for request in judged if not request.candidate]
        self.stable.add(stable)
        self.candidate.add(candidate)
        for held in self._errors:
            held.add(judged, lambda request: request.failed)
        for times in self._times:
            times.add(judged, self.stable)
        self._more.add((_bad(candidate), _bad(stable)), (len(candidate), len(stable)))

    @property
    def missing(self) -> int:
        """Number of answers of the stable version that are still needed for all ratios."""
        return max((limit.missing(self.stable) for limit in self._times), default=0)

    @property
    def findings(self) -> list[RuleState]:
        """The state of every rule."""
        states = [RuleState(str(limit.rule), limit.words, limit.held.value) for limit in self._times]
        states += [RuleState(str(limit.rule), limit.words(), limit.value) for limit in self._errors]
        shares = [f"{_bad_of(tally)} of {tally.requests}" for tally in (self.candidate, self.stable)]
        return [*states, RuleState(FAILS_MORE, f"{shares[0]}, stable {shares[1]}", self._more.value)]


class _Held:
    """The requests of both versions under one rule."""

    def __init__(self, rule: Rule, limit: float) -> None:
        self.rule, self._evidence = rule, AgainstRule(limit)
        self._requests, self._bad = 0, Counter[str]()

    def add(self, judged: Sequence[Judged], is_bad: Callable[[Judged], bool]) -> None:
        """Take requests of one moment."""
        bad = [request for request in judged if is_bad(request)]
        self._evidence.add(_by_version(bad), _by_version(judged))
        self._requests += _by_version(judged)[0]
        self._bad.update(request.key for request in bad if request.candidate)

    @property
    def value(self) -> float:
        """The evidence against the candidate."""
        return self._evidence.value

    def words(self, did: str = "") -> str:
        """The count of the candidate's bad requests, and the key that most of them came with."""
        bad = self._bad.total()
        key, most = self._bad.most_common(1)[0] if bad else ("", 0)
        whose = f", {most} of them with key {key}" if key and 2 * most > bad else ""
        return f"{bad} of {self._requests}{did}{whose}"


def _by_version(judged: Sequence[Judged]) -> tuple[int, int]:
    candidate = sum(request.candidate for request in judged)
    return candidate, len(judged) - candidate


class _Times:
    """A rule about a percentile. For p99 it is kept if at most 1 % of the requests take longer than its bound.

    The bound of a ratio is computed once, from the stable version, and does not move afterwards. Requests that came
    before wait, and are judged when the bound is known.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule, self.held = rule, _Held(rule, 1 - rule.percent / 100)
        self._bound_ms = rule.limit if rule.kind == "latency" else None
        self._waiting: list[Judged] = []

    def add(self, judged: Sequence[Judged], stable: Tally) -> None:
        """Take requests of one moment."""
        self._waiting += judged
        if self._bound_ms is None and not self.missing(stable):
            self._bound_ms = self.rule.limit * (stable.percentile(self.rule.percent) or 0.0)
        if (bound_ms := self._bound_ms) is not None:
            # A request that failed was not answered in time either.
            self.held.add(self._waiting, lambda request: request.ms > bound_ms or request.failed)
            self._waiting.clear()

    def missing(self, stable: Tally) -> int:
        """Number of answers of the stable version that are still needed for the bound."""
        if self._bound_ms is not None:
            return 0
        needed: float = _FEW / (1 - self.rule.percent / 100) ** 0.5
        return max(0, math.ceil(needed) - len(stable.ms))

    @property
    def words(self) -> str:
        """The observation, in words."""
        if self._bound_ms is None:
            return "not known yet: too few requests of the stable version"
        return self.held.words(f" took more than {self._bound_ms:.3g} ms")


def _bad(judged: Sequence[Judged]) -> int:
    return sum(request.failed or request.refused for request in judged)


def _bad_of(tally: Tally) -> int:
    return tally.failed + tally.refused
