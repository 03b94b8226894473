"""Lanes of tests: every test is in one, a changed room calls for those that guard it, and `.ci/run` runs them all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import counts, record
from tests.conftest import PROJECT
from tests.lanes import Lane, Runs, Table, chosen, distance, due, load, main, summary
from tests.test_structure import ROOMS, SOURCE

TABLE = load()
OUTSIDE = ["python_backends/native", "python_backends/backends", "python_backends/steps", "deploy", "bench", "loadtest"]
"""Rooms outside the package."""
PACKAGE = sorted(
    str(path.relative_to(PROJECT)) for tower, room in ROOMS if (path := SOURCE / tower / room).is_dir() and room
)


def test_every_file_of_tests_is_in_one_lane() -> None:
    """A second lane may take those tests of a file that the first leaves out by their mark."""
    for file in sorted((PROJECT / "tests").rglob("test_*.py")):
        marks = sorted(lane.mark for lane in TABLE.of(str(file.relative_to(PROJECT))))
        assert marks in ([""], ["not slow", "slow"]), file


@pytest.mark.parametrize("room", [*PACKAGE, *OUTSIDE])
def test_a_change_of_any_room_calls_for_a_slow_lane(room: str) -> None:
    """Every room of the package, and those outside it, is guarded by more than `make test`."""
    last_run = record.Record("x", "", {name: record.Result(1, True) for name in TABLE.lanes})
    assert due(TABLE, last_run, [f"{room}/module.py"])


def lane(name: str, *command: str, measures: bool = False, part: str = "slow", rooms: tuple[str, ...] = ()) -> Lane:
    """A lane that runs a command."""
    return Lane(
        name, name, part, paths=(f"tests/{name}",), measures=measures, rooms=rooms, command=command or ("true",)
    )


def table(*lanes: Lane) -> Table:
    """A table of lanes, with a ground of its own."""
    return Table({lane.name: lane for lane in lanes}, ("src/ground/*.py",))


def test_the_nearest_lanes_are_due_first() -> None:
    """A lane's own tests come before its rooms, those in the table's order, and the ground last."""
    near, far, other = (lane(name, rooms=rooms) for name, rooms in [("a", ("s/x",)), ("b", ("s/y", "s/x")), ("c", ())])
    lanes = table(other, far, near)
    last_run = record.Record("x", "", {name: record.Result(1, True) for name in "abc"})
    assert due(lanes, last_run, ["s/x/module.py"]) == [near, far]
    assert due(lanes, last_run, ["docs/x.md"]) == []
    assert due(lanes, last_run, ["tests/b/test_x.py", "s/x/module.py"]) == [far, near]
    assert [distance(near, [file], lanes.ground) for file in ("src/ground/x.py", "src/ground/x/y.py")] == [2, None]


def test_a_lane_that_failed_or_is_new_is_due() -> None:
    """The record says which lanes passed; without a record all are due."""
    lanes = table(lane("a"), lane("b"), lane("c"))
    last_run = record.Record("x", "", {"a": record.Result(1, True), "b": record.Result(1, False)})
    assert [lane.name for lane in due(lanes, last_run, [])] == ["b", "c"]
    assert [lane.name for lane in due(lanes, record.Record(), None)] == ["a", "b", "c"]


def test_a_commit_that_the_history_lacks_is_said() -> None:
    """A shallow clone has no such commit, so nothing is known of the changes."""
    unknown = record.Record("0123456789012345678901234567890123456789")
    assert unknown.changed() is None
    assert "no commit 01234567" in unknown.state()
    assert record.Record().changed() is None
    assert "no tests/record.json" in record.Record().state()


def test_lanes_of_others_inside_a_folder_are_left_out() -> None:
    """pytest is given the folder, and the folders that other lanes have in it to ignore."""
    lanes = Table({"unit": Lane("unit", "", "test", paths=("tests",), mark="not slow"), "x": lane("x")})
    assert lanes.choice(lanes.lanes["unit"]) == ["tests", "-m", "not slow", "--ignore=tests/x"]
    assert [lane.name for lane in lanes.of("tests/x/test_a.py")] == ["x"]
    assert [lane.name for lane in lanes.of("tests/xy/test_a.py")] == ["unit"]


def test_everything_runs_whatever_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lane's output appears as a whole, with its result."""
    lanes = table(lane("a", "sh", "-c", "echo one; exit 3"), lane("b", "sh", "-c", "echo two"))
    runs = Runs(lanes, record.Record(), folder=tmp_path)
    runs.run(list(lanes.lanes.values()))
    assert {name: result.passed for name, result in runs.results.items()} == {"a": False, "b": True}
    assert "== a\none\nFAILED in" in capsys.readouterr().out


def test_lanes_that_measure_run_one_at_a_time(tmp_path: Path) -> None:
    """Each notes its begin and its end; a lane that does not measure may run between them."""
    notes = tmp_path / "notes"
    words = ["sh", "-c", f"echo begin >>{notes}; sleep 0.2; echo end >>{notes}"]
    lanes = table(*(lane(name, *words, measures=True) for name in "abc"), lane("d", "sh", "-c", "true"))
    runs = Runs(lanes, record.Record(), folder=tmp_path)
    runs.run(list(lanes.lanes.values()))
    assert notes.read_text().split() == ["begin", "end"] * 3
    assert set(runs.results) == set("abcd")


LONG = record.Result(900, True)


def test_a_lane_that_would_end_too_late_is_named(tmp_path: Path) -> None:
    """The first runs in any case, and so does a shorter one after it."""
    lanes = table(lane("near"), lane("long"), lane("short"), lane("elsewhere"))
    last_run = record.Record("x", "", {"near": LONG, "long": LONG, "short": record.Result(1, True)})
    runs = Runs(lanes, last_run, time.monotonic() + 100, tmp_path)
    runs.run([lanes.lanes[name] for name in ("near", "long", "short")])
    lines = summary(lanes, ["due"], runs)
    assert set(runs.results) == {"near", "short"}
    assert "Not run, for lack of time: long" in lines
    assert "Not run, because none of their rooms changed: elsewhere" in lines


def test_names_on_the_command_line() -> None:
    """Parts and lanes, each once; an unknown name is refused with those there are."""
    lanes = table(lane("a"), lane("b", part="test"))
    assert [lane.name for lane in chosen(lanes, ["b", "all", "test"], record.Record())] == ["b", "a"]
    with pytest.raises(SystemExit, match="nowhere is no lane; there are a, b, test"):
        chosen(lanes, ["nowhere"], record.Record())


def test_a_lane_of_no_part_runs_only_by_its_own_name() -> None:
    """`all` leaves it out, so a record of a machine with a GPU has the same lanes as one of a machine without."""
    lanes = table(lane("a"), lane("gpu", part="named"))
    assert [lane.name for lane in chosen(lanes, ["all"], record.Record())] == ["a"]
    assert [lane.name for lane in chosen(lanes, ["gpu"], record.Record())] == ["gpu"]
    assert TABLE.lanes["gpu"] not in due(TABLE, record.Record(), None)


def test_tests_of_the_gpu_lie_in_one_folder() -> None:
    """Each file there carries the mark, and no file elsewhere does: `make gpu` runs that folder."""
    mark = re.compile(r"pytest\.mark\.gpu\b(?!\\)")
    files = [file for file in (PROJECT / "tests").rglob("test_*.py") if mark.search(file.read_text())]
    assert sorted(files) == sorted((PROJECT / "tests" / "gpu").rglob("test_*.py"))


def test_a_plan_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """`--print` gives the commands."""
    assert main(["--print", "test"]) == 0
    assert ".venv/bin/python -m pytest --numprocesses 3" in capsys.readouterr().out


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The numbers are sums by folder, a line each."""
    counted, file = tmp_path / "counts", tmp_path / "record.json"
    runs = [{"tests/a/test_x.py": {"passed": 2, "servers": 1}}, {"tests/a/b/test_y.py": {"failed": 1}}]
    counted.write_text("".join(json.dumps({"lane": "a", "files": run}) + "\n" for run in runs))
    record.write("abc", {"a": record.Result(7, True)}, counted, file)
    read = record.load(file)
    assert read.commit == "abc"
    assert read.lanes == {"a": record.Result(7, True)}
    assert read.folders == {"tests/a": {"passed": 2, "servers": 1}, "tests/a/b": {"failed": 1}}
    assert ' "tests/a": {"passed": 2, "servers": 1},\n' in file.read_text()
    assert counts.read(file)["tests/a"]["servers"] == 1


FAKE = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "${0##*/} $*" in $FAILS) exit 1;; esac
"""


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        ("nothing", ""),
        ("make*demo", "make demo"),
        ("make*clean-machine", "make clean-machine"),
        ("make*test", "make test"),
        ("python*due*", "slow lanes of tests"),
    ],
)
def test_ci_runs_everything_and_names_what_failed(tmp_path: Path, fails: str, named: str) -> None:
    """Its own commands, with programs in place of make and Docker that note how they were called."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci" / "run", tmp_path / ".ci")
    for program in ("bin/make", "bin/docker", "bin/apt-get", ".venv/bin/python"):
        file = tmp_path / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FAKE)
        file.chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "CALLS": str(calls), "FAILS": fails}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=variables, capture_output=True, text=True)
    assert done.returncode == (1 if named else 0), done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ([f"FAILED: {named}"] if named else [])
    steps = ["demo", "mlserver", "clean-machine", "check", "audit", "oldest", "lane LANE=others", "test"]
    lines = calls.read_text().splitlines()
    assert {f"make {step}" for step in steps} <= set(lines)
    assert lines[-1].startswith("python -m tests.lanes due --seconds ")


def test_lanes_run_without_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A clean machine has what README names, which is no git."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record.head() == ""
    assert record.Record("x").changed() is None
