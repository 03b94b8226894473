"""Lanes of tests: what runs together, and what a change calls for. The table is tests/lanes.toml.

`python -m tests.lanes` lists the lanes. With the names of lanes or parts it runs them, two at a time where the table
allows it, whatever fails; `all` names every lane that belongs to a part, and `due` the slow ones whose rooms changed
since tests/record.json. A lane whose part is `named`, such as `gpu`, runs only where its own name is given.
The exit code is 1 where a lane failed.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests import record

PROJECT = Path(__file__).resolve().parent.parent
TABLE = PROJECT / "tests" / "lanes.toml"
FOLDER = PROJECT / ".tritonkit" / "lanes"
"""The folder of logs and counts."""
PARTS = ("test", "others", "slow")
AT_A_TIME = 2
"""Lanes that run next to each other: most of them wait for a server most of the time."""


@dataclass(frozen=True)
class Lane:
    """A row of the table, whose head explains the fields."""

    name: str
    about: str
    part: str
    seconds: int = 180
    paths: tuple[str, ...] = ()
    mark: str = ""
    workers: int = 0
    alone: bool = False
    measures: bool = False
    rooms: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    make: str = ""


@dataclass(frozen=True)
class Table:
    """The lanes by name, and the places whose change calls for all slow ones."""

    lanes: dict[str, Lane]
    ground: tuple[str, ...] = ()

    def of(self, file: str) -> list[Lane]:
        """The lanes of a file of tests: those that name the nearest folder above it."""
        nearest = max((path for lane in self.lanes.values() for path in lane.paths if is_at(file, path)), default="")
        return [lane for lane in self.lanes.values() if nearest in lane.paths]

    def choice(self, lane: Lane) -> list[str]:
        """The arguments of pytest that choose a lane's tests."""
        elsewhere = {path for other in self.lanes.values() for path in other.paths} - set(lane.paths)
        ignored = sorted(path for path in elsewhere if any(is_at(path, own) for own in lane.paths))
        mark = ["-m", lane.mark] if lane.mark else []
        return [*lane.paths, *mark, *(f"--ignore={path}" for path in ignored)]

    def command(self, lane: Lane) -> list[str]:
        """The command that runs a lane, in the project's folder."""
        if lane.command:
            return list(lane.command)
        workers = ["--numprocesses", str(lane.workers), "--dist", "loadfile"] if lane.workers else []
        return [".venv/bin/python", "-m", "pytest", *workers, *self.choice(lane)]


def load(file: Path = TABLE) -> Table:
    """Read the table."""
    content = tomllib.loads(file.read_text())
    lanes = {
        name: Lane(name, **{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for name, row in content["lane"].items()
    }
    return Table(lanes, tuple(content.get("ground", ())))


def expected_s(lane: Lane, last_run: record.Record) -> int:
    """The seconds that a lane took in the last run of all, or that the table expects."""
    return last_run.lanes[lane.name].seconds if lane.name in last_run.lanes else lane.seconds


def is_at(file: str, place: str) -> bool:
    """Whether a file is a place, lies in that folder, or matches that pattern."""
    path = PurePosixPath(file)
    return path.is_relative_to(place) or ("*" in place and path.match(place))


def distance(lane: Lane, changed: Iterable[str], ground: tuple[str, ...] = ()) -> int | None:
    """The place of the nearest changed room in a lane's list, 0 for its own tests; None where no room changed."""
    places = [lane.paths, *((room,) for room in lane.rooms), ground]
    files = list(changed)
    for number, group in enumerate(places):
        if any(is_at(file, place) for file in files for place in group):
            return number
    return None


def due(table: Table, last_run: record.Record, changed: list[str] | None) -> list[Lane]:
    """The slow lanes to run for a change, nearest rooms first.

    Args:
        table: the lanes.
        last_run: the last run of all lanes.
        changed: the files that differ from its commit; None: unknown, so that every lane is due.
    """
    slow = [lane for lane in table.lanes.values() if lane.part == "slow"]
    if changed is None:
        return slow
    distances = {lane.name: distance(lane, changed, table.ground) for lane in slow}
    for lane in slow:
        if not last_run.passed(lane.name):
            distances[lane.name] = 0
    return sorted(
        (lane for lane in slow if distances[lane.name] is not None),
        key=lambda lane: (distances[lane.name], expected_s(lane, last_run)),
    )


@dataclass
class Runs:
    """Lanes that run, wait, and have run.

    Args:
        table: the lanes.
        last_run: the last run of all, for the time that a lane takes.
        end: when the last lane should be over, by `time.monotonic`; lanes that take longer than that are left out,
            except the first.
        folder: the folder of logs.
    """

    table: Table
    last_run: record.Record
    end: float = math.inf
    folder: Path = FOLDER
    waiting: list[Lane] = field(default_factory=list)
    results: dict[str, record.Result] = field(default_factory=dict)
    left_out: list[Lane] = field(default_factory=list)
    _started: bool = False
    _running: list[Lane] = field(default_factory=list)
    _turn: threading.Condition = field(default_factory=threading.Condition)

    def run(self, lanes: list[Lane]) -> None:
        """Run lanes: first those that run alone, then the others next to each other."""
        for lane in lanes:
            if lane.alone or len(lanes) == 1:
                self.results[lane.name] = self._run_one(lane, None)
            else:
                self.waiting.append(lane)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(AT_A_TIME)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while lane := self._next():
            log = self.folder / f"{lane.name}.log"
            result = self._run_one(lane, log)
            with self._turn:
                self._running.remove(lane)
                self.results[lane.name] = result
                say(f"== {lane.name}", log.read_text(errors="replace").rstrip(), str(result))
                self._turn.notify_all()

    def _next(self) -> Lane | None:
        """Wait for a lane that may start; None when none is left."""
        with self._turn:
            while self.waiting:
                measuring = any(lane.measures for lane in self._running)
                lane = next((lane for lane in self.waiting if not (lane.measures and measuring)), None)
                if lane is None:
                    self._turn.wait()
                    continue
                self.waiting.remove(lane)
                if not self._started or time.monotonic() + expected_s(lane, self.last_run) <= self.end:
                    self._started = True
                    self._running.append(lane)
                    return lane
                self.left_out.append(lane)
        return None

    def _run_one(self, lane: Lane, log: Path | None) -> record.Result:
        """Run a lane; what it prints goes to a log, or without one to this program's output."""
        command = self.table.command(lane)
        before = [["make", "--no-print-directory", lane.make]] if lane.make else []
        say(f"== {lane.name}: {shlex.join(command)}" + (f" >{log}" if log else ""))
        variables = os.environ | {"TEST_LANE": lane.name}
        began = time.monotonic()
        with log.open("wb") if log else nullcontext() as output:
            passed = all(
                subprocess.run(words, cwd=PROJECT, env=variables, stdout=output, stderr=output, check=False).returncode
                == 0
                for words in (*before, command)
            )
        return record.Result(round(time.monotonic() - began), passed)


def say(*lines: str) -> None:
    """Print lines without a delay, also into a file."""
    print(*lines, sep="\n", flush=True)  # noqa: T201


def chosen(table: Table, names: list[str], last_run: record.Record) -> list[Lane]:
    """The lanes of names on the command line.

    Raises:
        SystemExit: a name is unknown.
    """
    lanes: list[Lane] = []
    for name in names:
        if name in table.lanes:
            lanes.append(table.lanes[name])
        elif name == "due":
            lanes += due(table, last_run, last_run.changed())
        elif name in (*PARTS, "all"):
            lanes += [lane for lane in table.lanes.values() if lane.part in (PARTS if name == "all" else (name,))]
        else:
            raise SystemExit(f"{name} is no lane; there are {', '.join([*table.lanes, *PARTS, 'all', 'due'])}")
    return list(dict.fromkeys(lanes))


def listing(lanes: Iterable[Lane], last_run: record.Record) -> list[str]:
    """A line for each lane."""
    return [f"{lane.part:7}{lane.name:11}{expected_s(lane, last_run):5.0f} s  {lane.about}" for lane in lanes]


def summary(table: Table, names: list[str], runs: Runs) -> list[str]:
    """The results, and the lanes that did not run."""
    lines = [f"{name:11} {result}" for name, result in runs.results.items()]
    if runs.left_out:
        lines.append("Not run, for lack of time: " + ", ".join(lane.name for lane in runs.left_out))
    if "due" in names:
        slow = [lane for lane in table.lanes.values() if lane.part == "slow" and lane not in runs.left_out]
        rest = [lane.name for lane in slow if lane.name not in runs.results]
        lines += ["Not run, because none of their rooms changed: " + ", ".join(rest)] if rest else []
    return lines


def main(words: list[str]) -> int:
    """List lanes, or run some; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.add_argument("names", nargs="*", help="lanes, or: test, others, slow, all, due")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the commands; run nothing")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no lane that would end later")
    parser.add_argument("--record", action="store_true", help="write tests/record.json at the end")
    options = parser.parse_args(words)
    table, last_run = load(), record.load()
    if not options.names:
        say(*listing(table.lanes.values(), last_run))
        return 0
    if "due" in options.names:
        say(last_run.state())
    lanes = chosen(table, options.names, last_run)
    if options.only_print:
        say(
            *(f"{lane.name:11}{expected_s(lane, last_run):5.0f} s  {shlex.join(table.command(lane))}" for lane in lanes)
        )
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    commit = record.head()
    counts = FOLDER / "counts"
    if options.record or "TEST_COUNTS" not in os.environ:
        counts.unlink(missing_ok=True)
        os.environ["TEST_COUNTS"] = str(counts)
    runs = Runs(table, last_run, time.monotonic() + options.seconds)
    runs.run(lanes)
    if options.record:
        record.write(commit, runs.results, counts)
    say(*summary(table, options.names, runs))
    return 0 if all(result.passed for result in runs.results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
