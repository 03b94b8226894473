"""Two versions under the same traffic: what was seen of each, and whether the candidate must go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tritonkit.operate.release.evidence import ENOUGH, AgainstShare, AgainstStable
from tritonkit.operate.release.log import Judged
from tritonkit.operate.release.rules import Rule

__all__ = ["FAILS_MORE", "Finding", "Judge", "Seen"]

FAILS_MORE = "more errors than the stable version"
"""The rule that always holds; requests refused for what the caller sent count in it, too."""
_FEW = 50
"""Requests of the stable version before a ratio to it is known."""
_KEPT = 200_000


@dataclass
class Seen:
    """Requests of one version.

    Args:
        ms: the latest latencies of those that were answered.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    ms: list[float] = field(default_factory=list)

    def add(self, judged: Sequence[Judged]) -> None:
        """Count more."""
        self.requests += len(judged)
        self.failed += sum(each.failed for each in judged)
        self.refused += sum(each.refused for each in judged)
        self.ms += [each.ms for each in judged if not (each.failed or each.refused)]
        del self.ms[:-_KEPT]

    def percentile(self, percent: float) -> float | None:
        """Milliseconds; None where nothing was answered."""
        return float(np.percentile(self.ms, percent)) if self.ms else None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: counts, and milliseconds by percentile."""
        times = {f"p{percent:g}_ms": self.percentile(percent) for percent in (50, 95, 99)}
        return {"requests": self.requests, "failed": self.failed, "refused": self.refused, **times}


@dataclass(frozen=True)
class Finding:
    """How one rule stands.

    Args:
        rule: as it was given.
        found: what was seen, in words.
        evidence: the e-value against the candidate.
    """

    rule: str
    found: str
    evidence: float

    @property
    def broken(self) -> bool:
        """Whether the candidate must go."""
        return self.evidence >= ENOUGH

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self) | {"evidence": min(self.evidence, 1e300), "broken": self.broken}


class Judge:
    """Holds what both versions did against rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.candidate, self.stable = Seen(), Seen()
        self._more = AgainstStable()
        # A percentile is held if no more than the rest of the requests take longer.
        self._shares = {
            rule: AgainstShare(1 - rule.percent / 100 if rule.percent else rule.limit)
            for rule in rules
            if rule.kind != "differ"
        }
        self._bounds: dict[Rule, float] = {}

    def add(self, judged: Sequence[Judged]) -> None:
        """Take requests of one moment."""
        candidate = [each for each in judged if each.candidate]
        stable = [each for each in judged if not each.candidate]
        self.stable.add(stable)
        for rule, share in self._shares.items():
            if rule.kind == "errors":
                share.add(sum(each.failed for each in candidate), len(candidate))
            elif (bound := self._bound(rule)) is not None:
                # A request that failed was not answered in time either.
                late = sum(each.ms > bound or each.failed for each in candidate)
                share.add(late, len(candidate))
        bad = (_bad(candidate), _bad(stable))
        self._more.add(bad, (len(candidate), len(stable)))
        self.candidate.add(candidate)

    @property
    def findings(self) -> list[Finding]:
        """Every rule, and how it stands."""
        found = [
            Finding(str(rule), self._words(rule, share), share.value)
            for rule, share in self._shares.items()
        ]
        shares = [f"{_bad_of(seen)} of {seen.requests}" for seen in (self.candidate, self.stable)]
        return [*found, Finding(FAILS_MORE, f"{shares[0]}, stable {shares[1]}", self._more.value)]

    def _bound(self, rule: Rule) -> float | None:
        """Milliseconds. Those of a ratio are fixed once, so that the candidate's own requests cannot move them."""
        if rule.kind == "latency":
            return rule.limit
        if (
            rule not in self._bounds
            and len(self.stable.ms) >= _FEW / (1 - rule.percent / 100) ** 0.5
        ):
            known = self.stable.percentile(rule.percent)
            if known is not None:
                self._bounds[rule] = rule.limit * known
        return self._bounds.get(rule)

    def _words(self, rule: Rule, share: AgainstShare) -> str:
        if rule.kind == "errors":
            return f"{share.bad} of {share.requests}"
        bound = self._bound(rule)
        if bound is None:
            return "not known yet: too few requests of the stable version"
        return f"{share.bad} of {share.requests} took more than {bound:.3g} ms"


def _bad(judged: Sequence[Judged]) -> int:
    return sum(each.failed or each.refused for each in judged)


def _bad_of(seen: Seen) -> int:
    return seen.failed + seen.refused
