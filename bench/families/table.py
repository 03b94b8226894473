"""The table of the cookbook's pages."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["table"]

HEAD = (
    "page",
    "lines to write",
    "minutes to an answer",
    "equal to the reference",
    "largest difference",
    "mean batch",
    "largest batch",
    "requests/s over FastAPI's",
)


def table(rows: Sequence[Mapping[str, Any]], *, absolute: bool = True) -> list[str]:
    """A line for each page, as Markdown.

    Args:
        absolute: whether with the minutes, which are this machine's.
    """
    kept = [number for number, title in enumerate(HEAD) if absolute or "minutes" not in title]
    lines = [list(HEAD), ["---"] * len(HEAD), *map(_cells, rows)]
    return ["| " + " | ".join(cells[number] for number in kept) + " |" for cells in lines]


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "per_s" not in row:
        return [row["page"], str(row["lines"]), *["failed" if "problem" in row else "-"] * (len(HEAD) - 2)]
    ratios, batch = row["ratios"], row["batch"]
    return [
        row["page"],
        str(row["lines"]),
        f"{row['minutes']:.1f}",
        f"{row['equal']:.1%}",
        f"{row['difference']:.1g}",
        f"{batch['mean']:.1f}",
        str(batch["largest"]),
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    ]
