"""The steps of `make gpu`: each within its time, none twice, a failure reported and the rest run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gpu.steps import Outcome, State, Step, StepError, command, run_steps
from tests.waiting import eventually

KEY = "0123"


def step(name: str, work: Callable[[float], None], *needs: str, seconds: float = 60) -> Step:
    """A step."""
    return Step(name, "it", seconds, work, needs)


def broken(limit: float) -> None:
    """Fail."""
    raise StepError(f"no luck in {limit:.0f} s")


def run(steps: list[Step], state: State, seconds: float = 100) -> dict[str, Outcome]:
    """Run steps without printing."""
    return dict(run_steps(steps, state, seconds, say=lambda _: None))


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    """The state is a file: an interrupted run goes on after its last step."""
    file = tmp_path / "state.json"
    calls: list[str] = []

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    first = step("first", lambda _: calls.append("first"))
    with pytest.raises(KeyboardInterrupt):
        run([first, step("second", interrupted)], State.read(file, KEY))
    outcomes = run([first, step("second", lambda _: calls.append("second"))], State.read(file, KEY))
    assert calls == ["first", "second"]
    assert (outcomes["first"].kept, outcomes["second"].kept) == (True, False)
    assert list(json.loads(file.read_text())["done"]) == ["first", "second"]


@pytest.mark.parametrize("content", ['{"key": "other", "done": {"first": 1}}', "{", "[]", '{"key": "0123"}'])
def test_the_state_of_other_sources_or_another_card_does_not_count(tmp_path: Path, content: str) -> None:
    """Nor does a file that is not a state."""
    file = tmp_path / "state.json"
    file.write_text(content)
    assert State.read(file, KEY).done == {}


def test_a_failure_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Only what needs the failed step is left out, with its reason; a failed step is not kept."""
    state = State(tmp_path / "state.json", KEY)
    steps = [step("a", broken), step("b", lambda _: None, "a"), step("c", lambda _: None)]
    outcomes = run(steps, state)
    assert outcomes["a"].problem == "no luck in 60 s"
    assert outcomes["b"].problem == "not run: a failed"
    assert outcomes["c"].problem == ""
    assert list(state.done) == ["c"]


def test_no_step_begins_after_the_end(tmp_path: Path) -> None:
    """A step gets what is left of the whole, at most its own time."""
    limits: list[float] = []
    state = State(tmp_path / "state.json", KEY)
    run([step("a", limits.append, seconds=30), step("b", limits.append, seconds=5000)], state)
    assert limits[0] == 30
    assert 30 < limits[1] <= 100
    outcomes = run([step("late", limits.append)], State(tmp_path / "other.json", KEY), seconds=0)
    assert outcomes["late"].problem == "not run: no time was left"


@pytest.mark.slow
def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """Nothing goes on in the background, and the text says what was over."""
    pid = tmp_path / "pid"
    words = ["sh", "-c", f"sleep 600 & echo $! >{pid}; wait"]
    with pytest.raises(StepError, match=r"its 5 s were over"):
        command(words, 5, tmp_path, {})
    status = Path(f"/proc/{pid.read_text().strip()}/status")
    eventually(lambda: not status.exists() or "zombie" in status.read_text(), "the end of the child")


def test_a_program_s_exit_code_is_named(tmp_path: Path) -> None:
    """Variables of the step are added to the environment."""
    with pytest.raises(StepError, match=r"-c .* ended with exit code 7"):
        command([sys.executable, "-c", "import os; exit(int(os.environ['CODE']))"], 60, tmp_path, {"CODE": "7"})


def test_a_step_leaves_time_to_those_that_matter_more(tmp_path: Path) -> None:
    """A step gets less by the time of later steps, and is not run where nothing is left."""
    limits: list[float] = []
    steps = [replace(step("a", limits.append), spare=spare) for spare in (70.0, 200.0)]
    outcomes = run(steps[:1], State(tmp_path / "state.json", KEY))
    assert 29 < limits[0] <= 30
    outcomes = run(steps[1:], State(tmp_path / "other.json", KEY))
    assert outcomes["a"].problem == "not run: no time was left"
