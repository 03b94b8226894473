"""The part of a release in which requests go to the candidate: copies first, then step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from tritonkit.errors import ReleaseAborted
from tritonkit.operate.gateway.logs import RELEASE_LOG
from tritonkit.operate.release.candidate import Candidate
from tritonkit.operate.release.judge import Judge, RuleState, Tally
from tritonkit.operate.release.log import ReleaseLog
from tritonkit.operate.release.rules import Rule
from tritonkit.operate.release.shadow import Shadow, ShadowCounts
from tritonkit.operate.release.shadowed import ShadowJudge
from tritonkit.operate.stack.control import StackSession
from tritonkit.operate.stack.state import FOLDER

__all__ = ["ReleaseStep", "ReleaseTerms", "Status", "Steps", "Tell"]

_TICK_S = 0.5
_SETTLE_S = 1.5
"""Time until the gateway has logged earlier answers."""


@dataclass(frozen=True)
class ReleaseTerms:
    """Terms of a release.

    Args:
        steps: percentages of the requests, rising to 100.
        rules: the rules; the release ends when one is broken.
        hold_s: the shortest time of a step, in seconds.
        requests: the least number of requests that the candidate answers in a step.
        wait_s: the longest time that a step waits for these requests, in seconds.
        shadow_percent: the share of the requests copied to the candidate before the first step; 0: none.
        tolerance: the largest accepted difference of two numbers in answers to copies, as a fraction of that output's
            largest absolute value.
    """

    steps: Sequence[float]
    rules: Sequence[Rule]
    _: KW_ONLY
    hold_s: float = 60.0
    requests: int = 200
    wait_s: float = 600.0
    shadow_percent: float = 0.0
    tolerance: float = 0.01


@dataclass(frozen=True)
class Status:
    """Progress of a release.

    Args:
        doing: a description of the current action.
        percent: the share of the requests that goes to the candidate.
        seconds: the duration of this step so far.
        requests: the number of requests that the candidate answered in this step.
        candidate, stable: counts of each version's requests so far.
        findings: the state of the rules.
        shadow: counts of the copied requests; None outside that part.
    """

    doing: str
    percent: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    candidate: Tally = field(default_factory=Tally)
    stable: Tally = field(default_factory=Tally)
    findings: Sequence[RuleState] = ()
    shadow: ShadowCounts | None = None


@dataclass(frozen=True)
class ReleaseStep:
    """A step that went well."""

    percent: float
    seconds: float
    requests: int


Tell = Callable[[Status], None]


class Steps:
    """The part of a release in which requests go to the candidate."""

    def __init__(
        self,
        root: Path,
        stack: StackSession,
        candidate: Candidate,
        facts: Mapping[str, Any],
        terms: ReleaseTerms,
        tell: Tell,
    ) -> None:
        self._stack, self._candidate, self._terms, self._tell = stack, candidate, terms, tell
        self._log, self._address = root / FOLDER / "gateway" / RELEASE_LOG, str(facts["grpc"])
        self._hosts = (self._address, str(facts["http"]))
        self.judge = Judge(terms.rules)

    def copies(self) -> ShadowCounts:
        """Compare both versions' answers to copies for as long as a step takes."""
        terms = self._terms
        stable = self._stack.ask("served")["grpc"]
        judge = ShadowJudge(terms.rules)
        with Shadow(stable, self._address, terms.tolerance) as shadow, ExitStack() as after:
            self._stack.ask("split", percent=0.0, shadow=shadow.address, shadow_percent=terms.shadow_percent)
            after.callback(self._stack.ask, "split", percent=0.0)
            began = time.monotonic()
            while True:
                time.sleep(_TICK_S)
                seconds, counts = time.monotonic() - began, shadow.counts
                judge.look(counts)
                self._tell(
                    Status(
                        "comparing answers to copies",
                        0.0,
                        seconds,
                        counts.compared,
                        findings=judge.findings,
                        shadow=counts,
                    )
                )
                self._hold_to(judge.findings)
                if self._enough(seconds, counts.compared, "copies"):
                    return counts

    def steps(self) -> list[ReleaseStep]:
        """All steps, while no rule is broken."""
        done = []
        with ReleaseLog(self._log, self._hosts) as log:
            for percent in self._terms.steps:
                self._stack.ask("split", percent=percent)
                began, earlier = time.monotonic(), self.judge.candidate.requests
                while True:
                    time.sleep(_TICK_S)
                    self.judge.add(log.read())
                    seconds = time.monotonic() - began
                    count = self.judge.candidate.requests - earlier
                    self._say(percent, seconds, count)
                    if self._enough(seconds, count, "requests", compared=percent < 100):
                        break
                done.append(ReleaseStep(percent, round(seconds, 3), count))
            time.sleep(_SETTLE_S)
            self.judge.add(log.read())
            self._hold_to(self.judge.findings)
        return done

    def _say(self, percent: float, seconds: float, count: int) -> None:
        findings, judge = self.judge.findings, self.judge
        doing = f"{percent:g} % of the requests"
        self._tell(Status(doing, percent, seconds, count, judge.candidate, judge.stable, findings))
        self._hold_to(findings)

    def _enough(self, seconds: float, count: int, what: str, *, compared: bool = False) -> bool:
        """Whether a step has enough requests, with `compared` also of the stable version; ReleaseAborted if they do not
        come in time."""
        terms = self._terms
        missing = self.judge.missing if compared else 0
        if seconds > max(terms.wait_s, terms.hold_s) and (count < terms.requests or missing):
            few = count < terms.requests
            raise self._aborted(
                f"{count} {what} in {seconds:.0f} s" if few else f"the stable version answered {missing} too few",
                f"at least {terms.requests} in each step" if few else "enough of them to know what a ratio is to",
                "release under load, wait longer (--wait), or be content with fewer (--requests)",
            )
        return seconds >= terms.hold_s and count >= terms.requests and not missing

    def _hold_to(self, findings: Sequence[RuleState]) -> None:
        """ReleaseAborted for a candidate that has died, and for a rule that is broken."""
        looked = self._stack.ask("look")
        if looked["state"] != "ready":
            raise self._aborted(
                f"the candidate is {looked['state']}: {looked['said']}",
                "it to answer",
                "its log: .tritonkit/run/*/server.log",
            )
        for finding in findings:
            if finding.broken:
                raise self._aborted(
                    f"{finding.rule}: {finding.found}",
                    "a candidate that keeps all rules",
                    "look at what changed in the model, or set other rules: --abort-if",
                    findings,
                )

    def _aborted(self, found: str, wanted: str, todo: str, findings: Sequence[RuleState] = ()) -> ReleaseAborted:
        candidate = self._candidate
        back = "all requests go to the version before" if candidate.served else "nothing was released"
        lines = [f"{finding.rule}: {finding.found} (evidence {finding.evidence:.3g})" for finding in findings]
        return ReleaseAborted(
            f"the release of {', '.join(candidate.changes)}",
            found=f"{found}; {back}",
            wanted=wanted,
            todo=todo,
            details="\n".join(lines),
        )
