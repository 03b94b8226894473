"""GPUs during a run, by the servers' metrics: time in use, memory, power, and the energy of a request."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

from tritonkit import metrics as m
from tritonkit.perf.load.prometheus import MetricSample, read_samples
from tritonkit.repository.report.gpu_runs import CardFigures, GpuRun, keep_gpu_run
from tritonkit.serve.core.devices import find_driver

__all__ = ["GpuLook", "GpuReport", "GpuUse", "GpuWatch", "gpu_lines", "gpu_looks", "gpu_report", "keep_gpus"]

_EVERY_S = 0.5
"""Triton reads its GPUs every two seconds, so a change is noticed after a quarter of that at most."""
_SHORT = len("GPU-01234567")


@dataclass(frozen=True, slots=True)
class GpuLook:
    """A GPU at a moment of the monotonic clock; None for a figure that the driver does not know.

    Args:
        busy: the share of time in which some kernel ran, 0 to 1.
        memory_bytes: memory that all programs use.
        energy_j: joules since the server started; 0 if they are not counted.
    """

    at_s: float
    busy: float | None = 0.0
    memory_bytes: float | None = 0.0
    memory_total_bytes: float | None = 0.0
    power_w: float | None = 0.0
    power_limit_w: float | None = 0.0
    energy_j: float | None = 0.0


_FIELDS = {
    m.GPU_SHARE: "busy",
    m.GPU_MEMORY_USED: "memory_bytes",
    m.GPU_MEMORY_TOTAL: "memory_total_bytes",
    m.GPU_POWER: "power_w",
    m.GPU_POWER_LIMIT: "power_limit_w",
    m.GPU_ENERGY: "energy_j",
}


def gpu_looks(samples: Iterable[MetricSample], at_s: float) -> dict[str, GpuLook]:
    """The look at each GPU, by its UUID; empty for a server without GPU metrics.

    Prometheus' format has NaN for a figure that is not known, which JSON lacks.
    """
    values: dict[str, dict[str, float | None]] = defaultdict(dict)
    for sample in samples:
        if sample.name in _FIELDS and m.GPU_UUID in sample.labels:
            figure = sample.value if math.isfinite(sample.value) else None
            values[sample.labels[m.GPU_UUID]][_FIELDS[sample.name]] = figure
    return {gpu: GpuLook(at_s, **figures) for gpu, figures in values.items()}


@dataclass(frozen=True)
class GpuUse:
    """One GPU over a run; None for a figure that the driver does not know.

    Args:
        gpu: its UUID.
        busy: the mean share of time in which some kernel ran.
        memory_bytes: the most memory that all programs used.
        power_w: mean power. power_limit_w: its limit; 0 if the server does not report it.
        energy_j: energy of the run; None if the server counts none, or the run is too short.
        looks: the single looks, with seconds since the run began.
        name: the card's name; empty if the driver of this machine does not know it.
    """

    gpu: str
    busy: float | None
    memory_bytes: float | None
    memory_total_bytes: float | None
    power_w: float | None
    power_limit_w: float | None
    energy_j: float | None
    looks: tuple[GpuLook, ...] = ()
    name: str = ""

    @property
    def card(self) -> str:
        """The card's name with the beginning of its UUID, or the UUID."""
        return f"{self.name} ({self.gpu[:_SHORT]})" if self.name else self.gpu

    @classmethod
    def of(cls, gpu: str, looks: Sequence[GpuLook], start: float, seconds: float) -> GpuUse | None:
        """The use by looks within the seconds from a start on; None if no look has figures.

        Triton reports 0 for everything until it has read a GPU for the first time, two seconds after its start.
        """
        read = [look for look in looks if look.memory_total_bytes != 0 and 0 <= look.at_s - start <= seconds]
        if not read:
            return None
        power_w = _counted_power_w(read)
        return cls(
            gpu,
            _mean(look.busy for look in read),
            max((look.memory_bytes for look in read if look.memory_bytes is not None), default=None),
            read[-1].memory_total_bytes,
            _mean(look.power_w for look in read),
            read[-1].power_limit_w,
            None if power_w is None else power_w * seconds,
            tuple(_since(look, start) for look in read),
        )


def _mean(figures: Iterable[float | None]) -> float | None:
    """The mean of the figures that are known; None without any."""
    known = [figure for figure in figures if figure is not None]
    return fmean(known) if known else None


def _counted_power_w(looks: Sequence[GpuLook]) -> float | None:
    """Mean power by the energy counter, between its first and its last change; None for fewer than two changes.

    The counter stands still for seconds, so its rise over the whole run would be up to one such step off.
    """
    counted = [(look.at_s, look.energy_j) for look in looks if look.energy_j]
    changes = [after for before, after in pairwise(counted) if after[1] > before[1]]
    if len(changes) < 2:
        return None
    (first_s, first_j), (last_s, last_j) = changes[0], changes[-1]
    return (last_j - first_j) / (last_s - first_s)


def _since(look: GpuLook, start: float) -> GpuLook:
    figures = {field.name: getattr(look, field.name) for field in fields(look)}
    return GpuLook(**figures | {"at_s": round(look.at_s - start, 3)})


@dataclass(frozen=True)
class GpuReport:
    """All GPUs of the servers over a run, and the number of requests that were answered in it."""

    gpus: tuple[GpuUse, ...]
    answered: int

    @property
    def power_w(self) -> float | None:
        """Mean power of all GPUs together; None unless it is known of each."""
        return _sum(use.power_w for use in self.gpus)

    @property
    def energy_j(self) -> float | None:
        """Energy of all GPUs together; None unless it is known of each."""
        return _sum(use.energy_j for use in self.gpus)

    @property
    def energy_per_request_j(self) -> float | None:
        """Energy for an answered request; it includes the energy of idle time."""
        return self.energy_j / self.answered if self.energy_j is not None and self.answered else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "gpus": [asdict(use) for use in self.gpus],
            "power_w": self.power_w,
            "energy_j": self.energy_j,
            "energy_per_request_j": self.energy_per_request_j,
        }


def _sum(figures: Iterable[float | None]) -> float | None:
    """The sum of figures; None unless each is known."""
    known = list(figures)
    return None if None in known else sum(figure for figure in known if figure is not None)


def gpu_report(looks: Mapping[str, Sequence[GpuLook]], start: float, seconds: float, answered: int) -> GpuReport | None:
    """The report about the seconds from a moment of the monotonic clock on; None without a GPU's figures."""
    uses = (GpuUse.of(gpu, own, start, seconds) for gpu, own in sorted(looks.items()))
    gpus = tuple(use for use in uses if use is not None)
    return GpuReport(gpus, answered) if gpus else None


def gpu_lines(report: GpuReport | None) -> list[str]:
    """A line about each GPU, and one about all; empty without GPUs."""
    if report is None:
        return []
    lines = [str(_figures(use)) for use in report.gpus]
    energy_j, power_w = report.energy_per_request_j, report.power_w
    if energy_j is not None:
        together = f" and {power_w:.0f} W together" if len(report.gpus) > 1 and power_w is not None else ""
        lines.append(f"GPU energy: {energy_j:.3g} J a request{together}")
    return lines


def _figures(use: GpuUse) -> CardFigures:
    memory = use.memory_bytes, use.memory_total_bytes
    return CardFigures(use.card, use.busy, *memory, use.power_w, use.power_limit_w)


class GpuWatch:
    """Reads the GPUs of servers again and again, as a context manager around a run.

    A GPU that several servers report counts once. Servers without GPUs are read once and then left alone.

    Args:
        metrics: addresses of the servers' metrics.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self._metrics = list(metrics)
        self._end = threading.Event()
        self._looks: dict[str, list[GpuLook]] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> GpuWatch:
        for address in self._metrics:
            new = [gpu for gpu in _read(address) if gpu not in self._looks]
            if new:
                self._looks |= {gpu: [] for gpu in new}
                watch = threading.Thread(target=self._watch, args=(address, new), name="tritonkit-gpu", daemon=True)
                self._threads.append(watch)
                watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for watch in self._threads:
            watch.join()

    def report(self, start: float, seconds: float, answered: int) -> GpuReport | None:
        """See `gpu_report`; the cards of this machine have their names."""
        report = gpu_report(self._looks, start, seconds, answered)
        if report is None:
            return None
        names = _card_names()
        return replace(report, gpus=tuple(replace(use, name=names.get(use.gpu, "")) for use in report.gpus))

    def _watch(self, address: str, gpus: Sequence[str]) -> None:
        next_at = time.monotonic()
        while not self._end.wait(max(next_at - time.monotonic(), 0.0)):
            next_at += _EVERY_S
            looks = _read(address)
            for gpu in gpus:
                if gpu in looks:
                    self._looks[gpu].append(looks[gpu])


@cache
def _card_names() -> Mapping[str, str]:
    """UUID -> name of the cards of this machine. The driver is asked once: a search measures many runs."""
    return {f"GPU-{device.uuid}": device.name for device in find_driver().devices}


def _read(address: str) -> dict[str, GpuLook]:
    """The GPUs that a server reports now; empty if it does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return gpu_looks(read_samples(address), time.monotonic())
    return {}


def keep_gpus(root: Path, model: str, by: str, rate_per_s: float, report: GpuReport | None) -> None:
    """Note the GPUs of a run for `tritonkit report`; nothing where the server has none."""
    if report is None:
        return
    at = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    cards = tuple(map(_figures, report.gpus))
    keep_gpu_run(root, GpuRun(model, by, at, rate_per_s, cards, report.energy_per_request_j))
