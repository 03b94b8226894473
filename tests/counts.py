"""Numbers of tests and of started servers, by folder.

With TEST_COUNTS=FILE each run of pytest adds a line to that file (`tests/collected.py`).
`python -m tests.counts FILE` prints the sums by folder; `python -m tests.counts BEFORE AFTER` compares two such files,
or two records (`tests/record.json`). Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OUTCOMES = ("passed", "skipped", "failed", "error")
SERVERS = "servers"
"""The number of servers that a folder's tests started, next to the outcomes."""
DEPTH = 3
"""Folders below this depth count as the one above them."""

Counts = Mapping[str, Mapping[str, int]]


def read(file: Path) -> dict[str, Counter[str]]:
    """The numbers of each file of tests, or of each folder where the file is a record."""
    text = file.read_text()
    runs: list[Counts] = [content["folders"]] if (content := _record(text)) else list(map(_files, text.splitlines()))
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for name, numbers in run.items():
            sums[name].update(numbers)
    return sums


def _record(text: str) -> dict[str, Any] | None:
    """The content of a record; None where the text is no record."""
    try:
        content: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return content if "folders" in content else None


def _files(line: str) -> Counts:
    """The numbers of one run; those from before lanes have no field of their own."""
    run: dict[str, Any] = json.loads(line)
    files: Counts = run.get("files", run)
    return files


def by_folder(files: Counts) -> dict[str, Counter[str]]:
    """The numbers of files, summed by folder."""
    folders: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, numbers in files.items():
        parts = Path(name).parts
        folder = parts[:-1] if name.endswith(".py") else parts
        folders["/".join(folder[:DEPTH])].update(numbers)
    return folders


def total(numbers: Mapping[str, int]) -> int:
    """The tests of any outcome."""
    return sum(numbers.get(outcome, 0) for outcome in OUTCOMES)


def table(files: Counts) -> str:
    """The numbers by folder, and their sum."""
    folders = by_folder(files)
    columns = (*OUTCOMES, SERVERS)
    lines = [f"{'':34}" + "".join(f"{column:>9}" for column in columns)]
    for name, numbers in [*sorted(folders.items()), ("all", sum(folders.values(), Counter()))]:
        lines.append(f"{name:34}" + "".join(f"{numbers[column]:9}" for column in columns))
    return "\n".join(lines)


def comparison(before: Counts, after: Counts) -> str:
    """The tests and the started servers of two runs, by folder, and their sums."""
    runs = [by_folder(before), by_folder(after)]
    rows = [(name, [run.get(name, Counter()) for run in runs]) for name in sorted({*runs[0], *runs[1]})]
    rows.append(("all", [sum(run.values(), Counter()) for run in runs]))
    lines = [f"{'':34}{'tests before':>14}{'after':>8}{'':>8}{'servers before':>16}{'after':>8}"]
    for name, (old, new) in rows:
        change = total(new) - total(old)
        servers = f"{old[SERVERS]:16}{new[SERVERS]:8}"
        lines.append(f"{name:34}{total(old):14}{total(new):8}{f'{change:+}' if change else '':>8}{servers}")
    return "\n".join(lines)


def main(files: list[Path]) -> int:
    """Print the table of a file, or the comparison of two."""
    if len(files) not in (1, 2) or not all(file.is_file() for file in files):
        missing = [str(file) for file in files if not file.is_file()]
        print(f"no such file: {', '.join(missing)}" if missing else __doc__)  # noqa: T201
        return 2
    runs = [read(file) for file in files]
    print(comparison(*runs) if len(runs) == 2 else table(runs[0]))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main([Path(word) for word in sys.argv[1:]]))
