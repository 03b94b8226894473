"""Figures of GPUs while a model was under load, noted by the commands that load servers, for the report of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["CardFigures", "GpuRun", "gpu_runs", "keep_gpu_run"]

_FILE = Path(".tritonkit") / "gpu_runs.json"
_MOST = 200
_GIB = 1 << 30


@dataclass(frozen=True)
class CardFigures:
    """One GPU over a run; None for a figure that its driver does not give.

    Args:
        card: its name, or its UUID where the name is unknown.
        busy: the mean share of time in which some kernel ran.
        memory_bytes: the most memory that all programs used.
        power_w: mean power.
    """

    card: str
    busy: float | None
    memory_bytes: float | None
    memory_total_bytes: float | None
    power_w: float | None
    power_limit_w: float | None = None

    def __str__(self) -> str:
        return f"{self.card}: {', '.join(self._parts()) or 'its driver gives no figures'}"

    def _parts(self) -> Iterator[str]:
        """The figures that are known, in words."""
        if self.busy is not None:
            yield f"in use {self.busy:.0%} of the time"
        if self.memory_bytes is not None:
            total = f" of {self.memory_total_bytes / _GIB:.1f}" if self.memory_total_bytes is not None else ""
            yield f"{self.memory_bytes / _GIB:.1f}{total} GiB at most"
        if self.power_w is not None:
            limit = f" of {self.power_limit_w:.0f}" if self.power_limit_w else ""
            yield f"{self.power_w:.0f}{limit} W on average"


@dataclass(frozen=True)
class GpuRun:
    """One run under load.

    Args:
        model: the model that was called.
        by: the command.
        at: the day and time.
        rate_per_s: right answers per second.
        cards: the GPUs of the server.
        energy_per_request_j: their energy for an answered request; None if it is not counted.
    """

    model: str
    by: str
    at: str
    rate_per_s: float
    cards: tuple[CardFigures, ...]
    energy_per_request_j: float | None

    def __str__(self) -> str:
        energy_j = self.energy_per_request_j
        energy = "" if energy_j is None else f", {energy_j:.3g} J a request"
        return f"{self.rate_per_s:,.1f} requests/s{energy}: {'; '.join(map(str, self.cards))} ({self.by}, {self.at})"


def keep_gpu_run(root: Path, run: GpuRun) -> None:
    """Note a run, in place of the last one of this model, command and cards; a folder that cannot be written is left as
    it is."""
    others = [other for other in _read(root) if _key(other) != _key(run)]
    try:
        (root / _FILE).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(one) for one in [*others, run][-_MOST:]], indent=1)
        (root / _FILE).write_text(text + "\n", encoding="utf-8")
    except OSError:
        return


def gpu_runs(root: Path, model: str) -> tuple[GpuRun, ...]:
    """The runs of a model that were noted, the latest last."""
    return tuple(run for run in _read(root) if run.model == model)


def _key(run: GpuRun) -> tuple[str, ...]:
    return (run.model, run.by, *(card.card for card in run.cards))


def _read(root: Path) -> Sequence[GpuRun]:
    try:
        rows: Any = json.loads((root / _FILE).read_text(encoding="utf-8"))
        return [GpuRun(**row | {"cards": tuple(CardFigures(**card) for card in row["cards"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        return []
