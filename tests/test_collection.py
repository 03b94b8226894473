"""The suite's own messages: a file without tests, a part that is absent, the numbers by folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.counts import main, read, table

Run = Callable[..., subprocess.CompletedProcess[str]]
TEST = "def test_it():\n    pass\n"
NEEDS = 'import pytest\n\n@pytest.mark.needs("nowhere")\ndef test_it():\n    pass\n'
ABSENT = """
from tests import parts

parts.PARTS["nowhere"] = parts.Part("Nowhere", lambda: False, "apt-get install nowhere")
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """pytest with the project's settings and these plugins, over files in a folder of the test's own."""

    def start(*options: str, variables: dict[str, str] | None = None, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            file = tmp_path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        names = ("tests.collected", "tests.parts", "pytest_timeout", "xdist.plugin", "no:cacheprovider")
        plugins = [word for name in names for word in ("-p", name)]
        settings = ["-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(tmp_path)]
        environment = {
            key: value
            for key, value in os.environ.items()
            if key != "CI" and not key.startswith(("PYTEST_", "TEST_COUNTS"))
        }
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *settings, *options, str(tmp_path)],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            env=environment | (variables or {}),
        )

    return start


def test_ordinary_folder_names_are_collected(run: Run) -> None:
    """pytest's own settings would skip them without a word."""
    done = run(build__test_one=TEST, dist__test_two=TEST, venv__test_three=TEST)
    assert done.returncode == 0
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("options", [("-m", "not slow"), ("-n", "1")])
def test_a_file_that_gives_no_test_fails_the_run(run: Run, options: tuple[str, ...]) -> None:
    """It is named, also where the tests run in several processes."""
    done = run(*options, test_one=TEST, test_two="def it():\n    pass\n")
    assert done.returncode == 1
    assert re.search("no test was collected from .*test_two.py", done.stdout)
    assert "1 failed, 1 passed" in done.stdout


def test_what_a_run_leaves_out_on_purpose_is_no_silence(run: Run, tmp_path: Path) -> None:
    """A folder that is ignored, and a choice by name."""
    ignored = ("--ignore", str(tmp_path / "other"))
    assert run(*ignored, test_one=TEST, other__test_two="").returncode == 0
    assert "1 passed, 1 deselected" in run(*ignored, "-k", "test_it", test_one=TEST + "\ndef test_no(): ...\n").stdout


def test_an_absent_part_skips_its_tests_and_is_named_at_the_end(run: Run) -> None:
    """The last lines say what was not tested and what to install."""
    done = run(test_one=NEEDS, conftest=ABSENT)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "Not tested, because it is absent: Nowhere (1 skipped): apt-get install nowhere" in done.stdout


def test_an_absent_part_is_a_failure_in_ci(run: Run) -> None:
    """`CI=true` takes no skipped test for a success, unless the part can be had nowhere."""
    done = run(variables={"CI": "true"}, test_one=NEEDS, conftest=ABSENT)
    assert done.returncode == 1
    assert "CI=true, and there is no Nowhere: apt-get install nowhere" in done.stdout
    allowed = ABSENT.replace('nowhere")\n', 'nowhere", demanded=False)\n')
    assert run(variables={"CI": "true"}, test_one=NEEDS, conftest=allowed).returncode == 0


def test_a_module_that_skips_itself_gives_no_test(run: Run) -> None:
    """It is a file without tests: a mark on each of them shows how many were skipped."""
    done = run(test_one=TEST, test_two='import pytest\npytest.importorskip("no_such_module")\n')
    assert done.returncode == 1
    assert re.search("no test was collected from .*test_two.py", done.stdout)


def test_a_part_that_the_table_lacks_is_a_mistake(run: Run) -> None:
    """A name written wrong does not skip anything."""
    assert run(test_one=NEEDS).returncode == 1


def test_numbers_by_folder(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs add up, and one in several processes counts once."""
    counts = tmp_path / "counts"
    for options in ((), ("--numprocesses", "2")):
        done = run(*options, variables={"TEST_COUNTS": str(counts)}, wire__test_one=TEST)
        assert done.returncode == 0
    assert main([counts]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines()[1:]] == [["wire", "2"], ["all", "2"]]
    numbers = {"tests/a/b/c/test_x.py": {"passed": 1, "servers": 3}, "tests/test_y.py": {"failed": 2}}
    assert [line.split() for line in table(numbers).splitlines()] == [
        ["passed", "skipped", "failed", "error", "servers"],
        ["tests", "0", "0", "2", "0", "0"],
        ["tests/a/b", "1", "0", "0", "0", "3"],
        ["all", "1", "0", "2", "0", "3"],
    ]


def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of counts and a record; one from before lanes too. A file that is not there is named."""
    before, after = tmp_path / "counts", tmp_path / "record.json"
    old = {"tests/a/test_x.py": {"passed": 2}}
    new = {"lane": "b", "files": {"tests/b/test_y.py": {"passed": 1}}}
    before.write_text(f"{json.dumps(old)}\n{json.dumps(new)}\n")
    after.write_text('{"folders": {"tests/a": {"passed": 3, "servers": 4}}}')
    assert main([before, after]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["tests/a", "2", "3", "+1", "0", "4"],
        ["tests/b", "1", "0", "-1", "0", "0"],
        ["all", "3", "3", "0", "4"],
    ]
    assert main([before, tmp_path / "nowhere"]) == 2
    assert f"no such file: {tmp_path / 'nowhere'}" in capsys.readouterr().out


SERVER = """
import os, subprocess, pathlib, shutil

def test_it(tmp_path):
    program = shutil.copy(shutil.which("sleep"), tmp_path / "tritonserver")
    subprocess.run([program, "0.5"], check=True)
    subprocess.run([program, "0.5"], check=True, env={})
    subprocess.run(["sh", "-c", "sleep 0.2; exec sleep 0.2"], check=True)
"""


@pytest.mark.parametrize("options", [(), ("--numprocesses", "1")])
def test_servers_are_counted_where_they_were_started(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Only those of the run itself, which inherited its environment; other programs do not count."""
    counts = tmp_path / "counts"
    assert run(*options, variables={"TEST_COUNTS": str(counts)}, wire__test_one=SERVER).returncode == 0
    assert read(counts) == {"wire/test_one.py": {"passed": 1, "servers": 1}}
