"""Steps in order, each with its time: what is done is kept, what fails is reported, the rest goes on.

Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Outcome", "Refusal", "State", "Step", "StepError", "command", "run_steps"]


class Refusal(Exception):
    """Nothing can be run: the text says what is missing, and what to do."""


class StepError(Exception):
    """A step failed, and the text says why."""


@dataclass(frozen=True)
class Step:
    """A step.

    Args:
        name: its name in the state.
        about: the line that is printed when it begins.
        seconds: the most that it may take.
        work: the function that does it, in the seconds that are left for it.
        needs: the steps without which it cannot run.
        spare: seconds of the whole that it leaves to later steps.
    """

    name: str
    about: str
    seconds: float
    work: Callable[[float], None]
    needs: Sequence[str] = ()
    spare: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The end of a step: its seconds, and the reason of a failure; "kept" says that an earlier run did it."""

    seconds: float = 0.0
    problem: str = ""
    kept: bool = False


@dataclass
class State:
    """The steps that are done, in a file.

    Args:
        file: the file.
        key: a hash of what the results depend on; a state with another key does not count.
        done: step -> seconds.
    """

    file: Path
    key: str
    done: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def read(file: Path, key: str) -> State:
        """The state in a file; an empty one where there is none, or where it is another's."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(file.read_text())
            if content["key"] == key:
                return State(file, key, dict(content["done"]))
        return State(file, key)

    def keep(self, step: str, seconds: float) -> None:
        """Write down that a step is done."""
        self.done[step] = round(seconds, 1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_suffix(".part")
        draft.write_text(json.dumps({"key": self.key, "done": self.done}, indent=1) + "\n")
        draft.replace(self.file)


def run_steps(
    steps: Sequence[Step], state: State, seconds: float, say: Callable[[str], object] = print
) -> Mapping[str, Outcome]:
    """Run the steps that are not done, within a number of seconds together."""
    end = time.monotonic() + seconds
    outcomes: dict[str, Outcome] = {}
    for step in steps:
        if step.name in state.done:
            outcomes[step.name] = Outcome(state.done[step.name], kept=True)
            say(f"== {step.name}: done before, in {state.done[step.name]:.0f} s")
            continue
        missing = [name for name in step.needs if outcomes[name].problem]
        limit = min(step.seconds, end - time.monotonic() - step.spare)
        if missing or limit <= 0:
            problem = f"not run: {missing[0]} failed" if missing else "not run: no time was left"
            outcomes[step.name] = Outcome(problem=problem)
        else:
            say(f"== {step.name}: {step.about} (at most {limit:.0f} s)")
            outcomes[step.name] = _run(step, state, limit)
        if problem := outcomes[step.name].problem:
            say(f"== {step.name}: {problem}")
    return outcomes


def _run(step: Step, state: State, limit: float) -> Outcome:
    began = time.monotonic()
    try:
        step.work(limit)
    except (StepError, OSError, ValueError) as error:
        return Outcome(time.monotonic() - began, str(error))
    state.keep(step.name, time.monotonic() - began)
    return Outcome(time.monotonic() - began)


def command(words: Sequence[str], limit: float, folder: Path, variables: Mapping[str, str]) -> None:
    """Run a program, which prints to this terminal, with all that it starts ended at its limit.

    Raises:
        StepError: it ended with an error, or its time was over.
    """
    process = subprocess.Popen(words, cwd=folder, env=os.environ | dict(variables), start_new_session=True)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        raise StepError(f"its {limit:.0f} s were over") from None
    finally:
        _end(process)
    if code:
        raise StepError(f"{Path(words[0]).name} {' '.join(words[1:3])} ended with exit code {code}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, politely first: a server leaves no regions in /dev/shm."""
    for kind, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, kind)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return
