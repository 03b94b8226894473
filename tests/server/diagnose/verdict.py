"""Whether `diagnose` names the cause that a case provokes."""

from __future__ import annotations

import pytest

from tests.server.diagnose.cases import Bench, Case, Situation
from tritonkit.perf.diagnose import HEALTHY, Watcher, diagnose, evidence_of
from tritonkit.perf.diagnose.evidence import Evidence

__all__ = ["hold_to_verdict"]

_LOOKS = 12
"""The number of looks: while other programs take the cores, those may rightly be the verdict."""


def others_take_cores(evidence: Evidence) -> bool:
    """Whether programs besides the server wanted a core all the time."""
    machines = [server.machine for server in evidence.servers if server.machine]
    return any((machine.other_runnable or 0.0) >= 1.0 for machine in machines)


def looked_at(case: Case, there: Situation) -> Evidence:
    """The evidence of one window."""
    with Watcher(
        there.addresses,
        there.model,
        inputs=there.inputs,
        metrics=there.metrics,
        calls=there.calls,
        window_s=case.window_s,
    ) as observer:
        observer.wait(case.window_s)
        return evidence_of(observer.observation())


def hold_to_verdict(case: Case, bench: Bench) -> None:
    """Provoke the cause, and see that it is the verdict, with everything that a finding says."""
    with case.provoke(bench) as there:
        if there.lacks:
            pytest.skip(there.lacks)
        for _ in range(_LOOKS):
            evidence = looked_at(case, there)
            diagnosis = diagnose(evidence, case.target_ms)
            counted = [f for f in diagnosis.findings if f.where == there.model or not case.of_model]
            verdict = counted[0].cause if counted else HEALTHY
            if verdict == case.cause or not others_take_cores(evidence):
                break
    assert verdict == case.cause, (diagnosis, evidence)
    for finding in diagnosis.findings:
        assert finding.where
        assert finding.evidence
        assert finding.change
        assert finding.gain
