"""The record of the last run of all lanes: its commit, its numbers by folder, the seconds of each lane.

`make test-all` writes it, and it is tracked: `.ci/run` reads which rooms changed since, and how long a lane takes.
Standard library only.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import counts

PROJECT = Path(__file__).resolve().parent.parent
FILE = PROJECT / "tests" / "record.json"


@dataclass(frozen=True)
class Result:
    """One lane's run.

    Attributes:
        seconds: by the clock.
        passed: whether its exit code was 0.
    """

    seconds: int
    passed: bool

    def __str__(self) -> str:
        """The result in words."""
        return f"{'passed' if self.passed else 'FAILED'} in {self.seconds} s"


@dataclass(frozen=True)
class Record:
    """A run of all lanes.

    Attributes:
        commit: the commit that was tested; "" where there is no record.
        date: the time of its end, UTC.
        lanes: lane -> its result.
        folders: folder -> outcome -> number of tests, with the servers that they started.
    """

    commit: str = ""
    date: str = ""
    lanes: dict[str, Result] = field(default_factory=dict)
    folders: dict[str, dict[str, int]] = field(default_factory=dict)

    def passed(self, lane: str) -> bool:
        """Whether a lane ran and passed."""
        return lane in self.lanes and self.lanes[lane].passed

    def changed(self) -> list[str] | None:
        """The files that differ from the commit, as git names them; None where that cannot be known."""
        if not self.commit:
            return None
        done = git("diff", "--name-only", "--no-renames", self.commit)
        return done.stdout.splitlines() if done.returncode == 0 else None

    def state(self) -> str:
        """A line about the record and what changed since."""
        if not self.commit:
            return "There is no tests/record.json: every room counts as changed."
        files = self.changed()
        if files is None:
            return f"The history has no commit {self.commit[:8]} of tests/record.json: every room counts as changed."
        return f"{len(files)} files changed since {self.commit[:8]} of tests/record.json."


def git(*words: str) -> subprocess.CompletedProcess[str]:
    """Run git in the project; without git the outcome is that of a shell that does not find it."""
    try:
        return subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)  # noqa: S607
    except FileNotFoundError:
        return subprocess.CompletedProcess(["git", *words], 127, "", "git is not installed")


def head() -> str:
    """The commit that is checked out; "" outside a repository and without git."""
    return git("rev-parse", "--verify", "HEAD").stdout.strip()


def load(file: Path = FILE) -> Record:
    """Read the record; an empty one where there is none."""
    if not file.is_file():
        return Record()
    content = json.loads(file.read_text())
    lanes = {name: Result(**result) for name, result in content["lanes"].items()}
    return Record(content["commit"], content["date"], lanes, content["folders"])


def write(commit: str, lanes: dict[str, Result], counted: Path, file: Path = FILE) -> None:
    """Write the record of a run that just ended.

    Args:
        commit: the commit that was checked out when it began.
        lanes: lane -> its result.
        counted: the file of counts of that run.
        file: the record.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    folders = counts.by_folder(counts.read(counted))
    content = asdict(Record(commit, date, lanes, {name: dict(count) for name, count in sorted(folders.items())}))
    file.write_text(text(content))


def text(content: dict[str, Any]) -> str:
    """The record as JSON, with a line for each lane and each folder."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
