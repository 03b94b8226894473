"""docs/diagnose.md says what the rules and the provocations are."""

from __future__ import annotations

from tests.perf.diagnose.page import PAGE, written
from tests.perf.diagnose.recorded import RECORDED
from tests.perf.diagnose.test_gpu import OF_GPUS
from tests.server.diagnose.cases import CASES
from tritonkit.perf.diagnose import HEALTHY, RULES


def test_the_page_is_current() -> None:
    """Its tables are those that `python -m tests.perf.diagnose.page` writes."""
    page = PAGE.read_text()
    assert written(page) == page


def test_every_cause_is_provoked_on_a_real_server_or_recorded() -> None:
    """And nothing else is but a healthy one; no cause is named that has no rule. Those of GPUs are recorded."""
    provoked, recorded = {case.cause for case in CASES}, {trial.cause for trial in RECORDED}
    assert provoked | recorded == {*RULES, HEALTHY}
    assert recorded - provoked == OF_GPUS
