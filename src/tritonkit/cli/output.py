"""Tables for people, JSON for programs, errors for both.

Text from a server, a model folder or a log is shown through `tritonkit.text.printable`; JSON is ASCII.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonkit.errors import TritonkitError
from tritonkit.text import barred, printable

__all__ = ["byte_bar", "note", "print_error", "print_json", "print_line", "print_table", "to_plain"]

_notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def note(text: str) -> None:
    """Print a line about progress on standard error, so that output can be piped."""
    _notes.print(barred(text), markup=False)


def print_line(text: str = "") -> None:
    """A line of a command's own output, on standard output."""
    print(printable(text), flush=True)


def print_error(error: TritonkitError, as_json: bool) -> None:
    """One error, on standard error; as one JSON object for a program."""
    if as_json:
        print(json.dumps(error.to_dict()), file=sys.stderr)
    else:
        _notes.print("error:", style="bold red", end=" ")
        _notes.print(str(error), markup=False)


def print_json(value: Any) -> None:
    """A value on standard output, arrays and bytes included."""
    print(json.dumps(to_plain(value), indent=1))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as its content; figures to the right."""
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(_is_figure(row[index]) for row in rows)
        table.add_column(printable(column, lines=False), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(printable(cell, lines=False) for cell in row))
    # Wide enough for any row: a terminal wraps better than a table cuts.
    wide = Console(highlight=False, markup=False, emoji=False, width=2000, force_terminal=sys.stdout.isatty())
    with wide.capture() as capture:
        wide.print(printable(title, lines=False), style="bold")
        wide.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _is_figure(text: str) -> bool:
    """A number, with a unit or not: `0.98`, `-1.2e-05`, `86.7 MiB`; or the `-` of a missing one."""
    return text == "-" or re.fullmatch(r"[-+]?\d[\d.e+-]*( [A-Za-z]+)?", text) is not None


def to_plain(value: Any) -> Any:
    """Arrays as lists, bytes as text, or as {"base64": ...} where they are not UTF-8."""
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


@contextmanager
def byte_bar(doing: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of the bytes done out of all, on a terminal; nothing elsewhere, because most repositories take a second."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
