"""Which files gave tests, and how many ran by folder.

Loaded by `conftest.py` as a pytest plugin, it fails a run that was given a folder with a file of tests that
gave none: the file lies in a folder that pytest skips, or it holds nothing that is collected. With
TEST_COUNTS=FILE each run adds what it ran to that file; `python -m tests.counts FILE` prints the sum by folder, and
its exit code is 1 where a file's tests were in no run.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
OUTCOMES = ("passed", "skipped", "failed", "error")


def files_below(folder: Path) -> set[Path]:
    """Every file of tests below a folder."""
    return set(folder.rglob("test_*.py"))


class SilentFile(pytest.Item):
    """A test that fails, in place of those that a file should have given.

    As an error of the collection it would reach nobody where the tests run in several processes.
    """

    def runtest(self) -> None:
        """Fail."""
        pytest.fail(f"no test was collected from {self.name}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The file."""
        return self.path, None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a failing test for each file below the folders that were asked for which gave none.

    Before `-m` and `-k` take tests away; a file that cannot be imported is an error of its own.
    """
    if session.testsfailed:
        return
    here = config.invocation_params.dir
    given = [here / argument for argument in config.args]
    ignored = [here / path for path in config.getoption("ignore") or []]
    wanted = {file.resolve() for path in given if path.is_dir() for file in files_below(path)}
    wanted = {file for file in wanted if not any(map(file.is_relative_to, ignored))}
    for file in sorted(wanted - {item.path for item in items}):
        items.append(SilentFile.from_parent(session, name=str(file)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the outcomes of this run to the file that TEST_COUNTS names."""
    file = os.environ.get("TEST_COUNTS")
    # The processes of pytest-xdist report to the one that started them, which counts.
    if not file or hasattr(terminalreporter.config, "workerinput"):
        return
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in OUTCOMES:
        for report in terminalreporter.getreports(outcome):
            counts[report.nodeid.split("::")[0]][outcome] += 1
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with Path(file).open("a") as lines:
        lines.write(json.dumps(counts) + "\n")


def table(runs: list[dict[str, dict[str, int]]]) -> str:
    """The tests of all runs by folder, and their sum."""
    folders: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for counts in runs:
        for file, found in counts.items():
            # Those of a folder inside tests/client are counted with tests/client.
            folders["/".join(Path(file).parent.parts[:2])].update(found)
            folders["all"].update(found)
    total = folders.pop("all", Counter())
    lines = [f"{'':24}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES)]
    for name, found in [*sorted(folders.items()), ("all", total)]:
        lines.append(f"{name:24}" + "".join(f"{found[outcome]:9}" for outcome in OUTCOMES))
    return "\n".join(lines)


def main(file: Path) -> int:
    """Print the table; 1 where a file of tests is in no run."""
    runs = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    print(table(runs))  # noqa: T201
    ran = {TESTS.parent / name for counts in runs for name in counts}
    silent = sorted(str(path.relative_to(TESTS.parent)) for path in files_below(TESTS) - ran)
    if silent:
        print(f"no test ran of {', '.join(silent)}")  # noqa: T201
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
