"""`tritonkit diagnose` on a real Triton: each cause is provoked, and is the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.diagnose_cases import CASES, Bench, Case
from tritonkit.diagnose import Observer, diagnose, evidence_of

WINDOW_S = 5.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.how}")
def test_the_verdict_is_what_was_provoked(case: Case, tmp_path: Path, project: Path) -> None:
    """And every finding says with what evidence, what to change and what that brings."""
    with case.provoke(Bench(tmp_path, project)) as there:
        if there.lacks:
            pytest.skip(there.lacks)
        with Observer(
            there.addresses, there.model, inputs=there.inputs, metrics=there.metrics, window_s=WINDOW_S
        ) as observer:  # fmt: skip
            observer.wait(WINDOW_S)
            seen = observer.observation()
    evidence = evidence_of(seen)
    found = diagnose(evidence)
    assert found.verdict == case.cause, (found, evidence)
    for finding in found.findings:
        assert finding.where
        assert finding.evidence
        assert finding.change
        assert finding.gain
