"""A pytest plugin: files that gave no test fail the run, and TEST_COUNTS=FILE takes the numbers of each run.

A run that was given a folder fails where a file of tests in it gave none: the file lies in a folder that pytest
skips, or it holds nothing that is collected.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.counts import OUTCOMES, SERVERS
from tests.starts import Starts

STARTS = pytest.StashKey[Starts]()


def files_below(folder: Path) -> set[Path]:
    """Every file of tests below a folder."""
    return set(folder.rglob("test_*.py"))


class SilentFile(pytest.Item):
    """A test that fails, in place of those that a file should have given.

    An error of the collection would reach nobody where the tests run in several processes.
    """

    def runtest(self) -> None:
        """Fail."""
        pytest.fail(f"no test was collected from {self.name}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The file."""
        return self.path, None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a failing test for each file below the given folders that gave none.

    This comes before `-m` and `-k` take tests away. A file that cannot be imported is an error of its own.
    """
    if session.testsfailed:
        return
    here = config.invocation_params.dir
    places = [here / argument for argument in config.args]
    ignored = [here / path for path in config.getoption("ignore") or []]
    expected = {file.resolve() for path in places if path.is_dir() for file in files_below(path)}
    expected = {file for file in expected if not any(map(file.is_relative_to, ignored))}
    for file in sorted(expected - {item.path for item in items}):
        items.append(SilentFile.from_parent(session, name=str(file)))


def _counts_into(config: pytest.Config) -> str:
    """The file for this run's numbers; "" where nobody wants them, or another process counts."""
    return "" if hasattr(config, "workerinput") else os.environ.get("TEST_COUNTS", "")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count the servers that the tests start."""
    if _counts_into(config):
        config.stash[STARTS] = Starts()
        config.stash[STARTS].start()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Add the outcomes of this run, and the servers that it started, to the file."""
    file = _counts_into(config)
    if not file:
        return
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in OUTCOMES:
        for report in terminalreporter.getreports(outcome):
            counts[report.nodeid.split("::")[0]][outcome] += 1
    for name, servers in config.stash[STARTS].stop().items():
        counts[name][SERVERS] += servers
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with Path(file).open("a") as lines:
        lines.write(json.dumps({"lane": os.environ.get("TEST_LANE", ""), "files": counts}) + "\n")
