"""The search for the highest rate, on a machine that is simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.perf.tune.test_search import NOW, SLO, Machine, truth
from tritonkit.perf.load.openloop import Generator, OpenLoad, OpenReport, Slo, find_rate


def test_the_rate_that_holds_is_found_with_its_interval() -> None:
    """The sure rate is below the true one, the missed rate above, both close."""
    search = find_rate(cast("Generator", Machine()), SLO, trial_s=20.0, unit="sequences")
    assert search.low <= search.rate_per_s
    assert search.high
    assert 0.85 * truth(NOW) <= search.rate_per_s <= 1.1 * truth(NOW)
    assert search.high / search.rate_per_s < 1.2
    assert search.summary.startswith(f"{search.rate_per_s:.1f} sequences/s hold")
    assert search.to_dict()["unit"] == "sequences"


@pytest.mark.parametrize("trial_s", [1.0, 5.0])
def test_a_target_that_no_rate_holds_is_said_with_the_lowest_that_was_tried(trial_s: float) -> None:
    """No rate is tried at which hardly a request would come."""
    search = find_rate(cast("Generator", Machine()), Slo({99.0: 0.1}), trial_s=trial_s, longest_s=2 * trial_s)
    assert search.rate_per_s == search.low == 0.0
    least = min(trial.rate_per_s for trial in search.trials)
    assert least * 2 * trial_s >= 10
    assert search.summary == f"No rate from {least:.2g}/s on held p99=0.1ms."


def test_a_generator_that_has_one_process_is_not_asked_for_more_for_ever() -> None:
    """If each trial is late and misses, the search ends like any other that finds no rate."""

    class Late(Machine):
        def run(self, load: OpenLoad) -> OpenReport:
            return replace(super().run(load), invalid=("late",))

    search = find_rate(cast("Generator", Late()), Slo({99.0: 0.1}), trial_s=2.0)
    assert search.rate_per_s == 0.0
    assert search.ended == ""
