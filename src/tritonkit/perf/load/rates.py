"""The rates that models of a project last held on this machine, with which a plan is compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tritonkit.machine import cores

__all__ = ["HeldRate", "keep_rate", "kept_rates"]

_FILE = Path(".tritonkit") / "rates.json"
_MOST = 200


@dataclass(frozen=True)
class HeldRate:
    """One measurement.

    Args:
        slo: the target that it held.
        by: the command that measured it, such as `tune`.
        at: the day and time.
        cores: the number of cores of the machine.
    """

    model: str
    slo: str
    rate_per_s: float
    by: str
    at: str
    cores: int

    def __str__(self) -> str:
        return f"{self.rate_per_s:,.1f}/s held by {self.by} on {self.at}"


def keep_rate(root: Path, model: str, slo: str, rate_per_s: float, by: str) -> None:
    """Note a rate, in place of the last one of this model, target and command; a folder that cannot be written is
    left as it is."""
    at = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    made = HeldRate(model, slo, rate_per_s, by, at, cores())
    others = [rate for rate in _read(root) if (rate.model, rate.slo, rate.by) != (model, slo, by)]
    try:
        (root / _FILE).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(rate) for rate in [*others, made][-_MOST:]], indent=1)
        (root / _FILE).write_text(text + "\n", encoding="utf-8")
    except OSError:
        return


def kept_rates(root: Path, model: str, slo: str) -> tuple[HeldRate, ...]:
    """Rates noted for a model and a target on a machine with the same number of cores, the latest last."""
    return tuple(
        rate
        for rate in _read(root)
        if (rate.model, rate.slo, rate.cores) == (model, slo, cores()) and rate.rate_per_s > 0
    )


def _read(root: Path) -> Sequence[HeldRate]:
    try:
        rows: Any = json.loads((root / _FILE).read_text(encoding="utf-8"))
        return [HeldRate(**row) for row in rows]
    except (OSError, ValueError, TypeError):
        return []
