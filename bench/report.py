"""Ratios measured side by side, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Ratio", "Report", "print_report", "write_json"]


@dataclass(frozen=True)
class Ratio:
    """One thing over another, once per round.

    Args:
        name: the dividend and the divisor.
        rounds: the ratio in each round.
        at_most: a limit the median must not pass, if one was promised.
        at_least: a limit the median must reach, if one was promised.
        facts: figures of the same run that help to read the ratio.
    """

    name: str
    rounds: Sequence[float]
    at_most: float | None = None
    at_least: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.rounds)

    @property
    def holds(self) -> bool:
        """Whether the median keeps the promised limit."""
        above = self.at_least is None or self.median >= self.at_least
        return above and (self.at_most is None or self.median <= self.at_most)


@dataclass(frozen=True)
class Report:
    """The outcome of one measurement.

    `more` is written into the JSON next to the ratios: figures that tables are made from. `notes` are printed below.
    """

    bench: str
    about: str
    ratios: Sequence[Ratio]
    more: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        """Whether every promised limit was kept."""
        return all(ratio.holds for ratio in self.ratios)


def print_report(report: Report) -> None:
    """Print the table, with the spread over rounds next to each median."""
    print(f"{report.bench}: {report.about}")
    wide = max((len(ratio.name) for ratio in report.ratios), default=0)
    print(f"{'':{wide}}  {'median':>7} {'min':>7} {'max':>7}  limit")
    for ratio in report.ratios:
        least, most = min(ratio.rounds), max(ratio.rounds)
        print(f"{ratio.name:{wide}}  {ratio.median:7.3f} {least:7.3f} {most:7.3f}  {_limit(ratio)}")
        for key, value in ratio.facts.items():
            print(f"{'':{wide}}    {key}: {value}")
    for note in report.notes:
        print(note)


def write_json(report: Report, path: Path) -> None:
    """Write every round and the machine it was measured on."""
    content = {
        "bench": report.bench,
        "about": report.about,
        "machine": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "holds": report.holds,
        "ratios": [asdict(ratio) | {"median": ratio.median, "holds": ratio.holds} for ratio in report.ratios],
        **report.more,
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def _limit(ratio: Ratio) -> str:
    if ratio.at_most is not None and ratio.at_least is not None:
        text = f"{ratio.at_least:.2f} to {ratio.at_most:.2f}"
    elif ratio.at_most is not None:
        text = f"at most {ratio.at_most:.2f}"
    elif ratio.at_least is not None:
        text = f"at least {ratio.at_least:.2f}"
    else:
        return ""
    return text if ratio.holds else f"{text}  NOT KEPT"
