"""A search as one HTML page: the chosen way, the rate of each way, and the error of the batcher's model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tritonkit
from tritonkit.perf.tune.outcome import Evaluation, Outcome
from tritonkit.perf.tune.search import HOPELESS
from tritonkit.perf.tune.space import Point
from tritonkit.repository.report.charts import Line, lines
from tritonkit.repository.report.page import Machine, environment

__all__ = ["importance", "page"]

_WIDTH = 900.0


def page(
    model: str, outcome: Outcome, machine: Machine, written: str, *, diff: str, command: str, where: str = ""
) -> str:
    """The page: text that needs no other file and no address to be shown.

    Args:
        diff: the changes to model.yaml.
        command: the command that repeats the search.
        where: the server, if it is not an embedded one on the machine that sends.
    """
    template = environment(Path(__file__).parent / "templates").get_template("tune.html.j2")
    percent, ms = outcome.slo.tightest
    at_rate = outcome.objective.name != "throughput"
    trials = outcome.answered
    front = _front([(rate, tail) for rate, tail, _ in trials])
    plot = lines(
        [
            Line("front", front),
            # A gap after each point, so that no line joins them.
            Line("runs", [place for rate, tail, _ in trials for place in ((rate, tail), (rate, None))]),
            Line("best", _of(outcome.best)),
            *([Line("now", _of(outcome.current))] if outcome.best != outcome.current else []),
        ],
        width=_WIDTH,
        height=320,
        logarithmic=True,
        limits=[(ms, f"target {ms:g} ms")],
    )
    return template.render(
        model=model,
        outcome=outcome,
        machine=machine,
        written=written,
        diff=diff,
        command=command,
        where=where,
        version=tritonkit.__version__,
        percent=percent,
        plot=None if at_rate else plot,
        at_rate=at_rate,
        points=_points(outcome),
        importance=importance(outcome),
    )


def importance(outcome: Outcome) -> list[tuple[str, float]]:
    """The effect of each knob: the highest predicted value over that of its worst choice, with the others at their
    best, as far as it was simulated (1 / `HOPELESS`). These are uncorrected predictions."""
    knobs: dict[str, Callable[[Point], object]] = {
        "variant": lambda p: p.group.variant,
        "device": lambda p: p.group.gpus > 0,
        "instances x threads": lambda p: (p.group.instances, p.group.threads),
        "batch limit": lambda p: p.max_batch_size,
        "queue delay": lambda p: p.delay_us,
        "preferred sizes": lambda p: p.preferred,
    }
    least = HOPELESS if outcome.objective.name == "throughput" else 0.0
    effects = []
    for name, value in knobs.items():
        best: dict[Any, float] = defaultdict(float)
        for point, rate in outcome.predicted.items():
            best[value(point)] = max(best[value(point)], rate)
        most = max(best.values(), default=0.0)
        if len(best) > 1 and most:
            effects.append((name, most / max(min(best.values()), least * most)))
    return sorted(effects, key=lambda pair: -pair[1])


def _of(evaluation: Evaluation | None) -> list[tuple[float, float | None]]:
    if evaluation is None or evaluation.tail_ms is None:
        return []
    return [(evaluation.rate_per_s, evaluation.tail_ms)]


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float | None]]:
    """Trials that no other beats in both rate and latency, by rate."""
    front: list[tuple[float, float | None]] = []
    least = float("inf")
    for rate, tail in sorted(points, key=lambda p: (-p[0], p[1])):
        if tail < least:
            least = tail
            front.append((rate, tail))
    return front[::-1]


def _points(outcome: Outcome) -> list[dict[str, Any]]:
    """A row for each point that was measured, best first."""
    rows: dict[Point, dict[str, Any]] = {}
    for evaluation in outcome.evaluations:
        row = rows.setdefault(evaluation.point, {"point": evaluation.point, "rate": 0.0, "trials": 0, "problem": ""})
        row["rate"] = max(row["rate"], evaluation.rate_per_s)
        row["trials"] += len(evaluation.trials)
        row["problem"] = row["problem"] or evaluation.problem.split("\n")[0]
        row["predicted"] = evaluation.predicted
        row["tail"], row["cpu"] = evaluation.tail_ms, evaluation.cpu_s
        highest = [trial.rate_per_s for trial in evaluation.trials if not trial.holds]
        row["missed"] = min(highest, default=None)
    return sorted(rows.values(), key=lambda row: (-row["rate"], row["tail"] or 0.0))
