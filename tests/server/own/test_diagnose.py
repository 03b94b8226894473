"""`tritonkit diagnose` on a real Triton: one cause is provoked, and is the verdict."""

from __future__ import annotations

from pathlib import Path

from tests.server.diagnose.cases import CASES, Bench
from tests.server.diagnose.verdict import hold_to_verdict


def test_a_slow_first_step_is_the_verdict(tmp_path: Path, project: Path) -> None:
    """Its step sleeps for nearly all of a request's time, on a quiet machine and on a busy one."""
    (case,) = [case for case in CASES if case.cause == "decoding"]
    hold_to_verdict(case, Bench(tmp_path, project))
