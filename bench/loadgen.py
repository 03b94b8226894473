"""Tritonkit's open-loop load and NVIDIA's perf_analyzer: the same requests at the same moments to one server."""

from __future__ import annotations

import base64
import contextlib
import statistics
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.closed_loop import closed_loop
from bench.perf_analyzer import Analyzed, perf_analyzer
from bench.processor import on_part
from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.setting import chosen, served
from tritonkit.client import Client
from tritonkit.perf.load.openloop import Arrivals, Generator, OpenLoad, OpenReport, draw
from tritonkit.perf.load.workloads import IMAGES, PAIRS
from tritonkit.repository.export import load_hook
from tritonkit.repository.modelspec import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.setting import Setting

__all__ = ["run"]

MODELS = ("sentences", "digits")
INPUTS = {"sentences": "text", "digits": "image"}
CALLERS = 8
SHARES = (0.3, 0.6)
"""Shares of the rate that `CALLERS` reach in a closed loop; near that rate an open loop's queue grows."""
REPEATS = 3
"""Repeats of the moments in a run: perf_analyzer counts three windows."""
POINTS = (50, 90, 95, 99)
RATE_OFF, TIME_OFF = 0.05, 0.15


@dataclass(frozen=True)
class _Case:
    """A model, and a rate as a share of its capacity."""

    model: str
    share: float
    per_s: float


@dataclass(frozen=True)
class _Pair:
    """One round: both generators at the same moments."""

    ours: OpenReport
    theirs: Analyzed


def run(setting: Setting) -> Report:
    """Rates and percentiles of `tritonkit load --rate` over those of perf_analyzer, in turns."""
    models = chosen("--models", setting.models, MODELS)
    ratios: list[Ratio] = []
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        # Neither generator may take resources from the measured server.
        with on_part(0, 2):
            address = stack.enter_context(served(setting, MODELS))
        stack.enter_context(on_part(1, 2))
        for model in models:
            with Generator(ROOT, (model,), (address,)) as generator:
                most_per_s = _closed_loop(setting, address, model)
                for share in SHARES:
                    case = _Case(model, share, share * most_per_s)
                    pairs = [
                        _pair(setting, generator, address, case, turn, Path(name)) for turn in range(setting.rounds)
                    ]
                    ratios += _ratios(case, pairs)
    return Report(
        "loadgen",
        "tritonkit's open-loop load over perf_analyzer, the same requests at the same moments to one server;"
        " times from when a request was sent; the server has half of the cores, the generators the others",
        ratios,
    )


def _pair(setting: Setting, generator: Generator, address: str, case: _Case, turn: int, folder: Path) -> _Pair:
    """Run both, in an order that rotates from round to round."""
    moments = draw(Arrivals(seed=turn), case.per_s, setting.seconds)
    length = float(moments[-1])
    # Once before the counted part, because perf_analyzer starts to count only after a while.
    trace = np.concatenate([moments + length * k for k in range(1 + REPEATS)])

    def ours() -> OpenReport:
        return generator.run(OpenLoad(case.per_s, length * REPEATS, length, trace=trace, in_turn=True))

    def theirs() -> Analyzed:
        return perf_analyzer(address, case.model, _data(case.model), moments, REPEATS, folder)

    if turn % 2:
        after = theirs()
        return _Pair(ours(), after)
    return _Pair(ours(), theirs())


def _items(model: str) -> list[Any]:
    """The texts or images that tritonkit's workload has, in its order."""
    if model == "sentences":
        return [text for pair in PAIRS for text in pair]
    hook = load_hook(load(ROOT / "models" / model, ROOT), "data:held_out_images", "bench")
    return [image for image, _ in hook(IMAGES)]


def _data(model: str) -> list[dict[str, Any]]:
    """The same as perf_analyzer's JSON has them; an element of BYTES is preceded by its length."""
    contents = [item.encode() if isinstance(item, str) else bytes(item) for item in _items(model)]
    packed = [base64.b64encode(struct.pack("<I", len(c)) + c).decode() for c in contents]
    return [{INPUTS[model]: {"b64": text}} for text in packed]


def _closed_loop(setting: Setting, address: str, model: str) -> float:
    """Answers a second to `CALLERS` in a closed loop."""
    items = [{INPUTS[model]: item} for item in _items(model)]
    with Client(address) as client:
        return len(closed_loop(client, model, items, CALLERS, setting.seconds)) / setting.seconds


def _ratios(case: _Case, pairs: Sequence[_Pair]) -> list[Ratio]:
    """The rate, and each percentile."""
    name = f"{case.model} at {case.share:.0%} of its rate"
    series = [pair.ours.series[0] for pair in pairs]
    ratios = [
        _near(
            f"{name}: answers/s",
            [s.rate_per_s / pair.theirs.per_s for s, pair in zip(series, pairs, strict=True)],
            RATE_OFF,
            {
                "requests/s": round(case.per_s, 1),
                "ours, perf_analyzer: of a core": [
                    round(statistics.median(sum(pair.ours.cpu_shares) for pair in pairs), 3),
                    round(statistics.median(pair.theirs.cpu_share for pair in pairs), 3),
                ],
                "perf_analyzer sent late": f"{statistics.median(p.theirs.delayed for p in pairs):.1%}",
                "ours sent late, ms at p99": round(statistics.median(pair.ours.lag.at(99) for pair in pairs), 2),
            },
        )
    ]
    for point in POINTS:
        ms = [(s.service.at(point) if s.service else np.nan) for s in series]
        facts = {
            "ours, perf_analyzer: ms": [
                round(statistics.median(ms), 2),
                round(statistics.median(pair.theirs.ms[point] for pair in pairs), 2),
            ]
        }
        over = [own / pair.theirs.ms[point] for own, pair in zip(ms, pairs, strict=True)]
        ratios.append(_near(f"{name}: p{point}", over, TIME_OFF, facts))
    return ratios


def _near(name: str, rounds: Sequence[float], off: float, facts: dict[str, Any]) -> Ratio:
    return Ratio(name, rounds, at_most=1 + off, at_least=1 - off, facts=facts)
