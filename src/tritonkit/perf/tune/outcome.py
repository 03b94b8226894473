"""Events and the outcome of a search: measured points, and the choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from tritonkit.perf.load.openloop import OpenReport, RateTrial, Slo
from tritonkit.perf.simulation import Costs, SimulatedBatcher, simulate_alone
from tritonkit.perf.tune.client_batching import ClientBatching
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.space import InstanceGroup, Point
from tritonkit.repository.modelspec.base import Target

__all__ = ["Evaluation", "Listener", "Outcome", "Stage"]

Stage: TypeAlias = Literal["costs", "current", "race", "validation", "clients"]
_MOST_ALONE = 0.7
"""Share of the target: if a request takes longer alone, little is left for any queue."""


@dataclass(frozen=True)
class Evaluation:
    """The results of one point: the rate at which it held the target (0 if it held at no tried rate), and its trials.

    Args:
        predicted: the point's value (`Objective.value`) by simulation; 0: not simulated.
        problem: the reason why the point could not be served; empty if it could.
        cpu_s: processor seconds of the server for a request, if they were measured.
    """

    point: Point
    stage: Stage
    predicted: float
    rate_per_s: float
    tail_ms: float | None
    trials: tuple[RateTrial, ...] = ()
    problem: str = ""
    cpu_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Args:
        now: the point that is served today.
        best, current: the best point and the one served today, as validated.
        evaluations: all points that were measured, in order.
        costs: the costs of each group. predicted: the value of each point by simulation.
        measurements: runs under load.
        ended: the reason why the search ended early, if it did; then the best is not validated.
        complete: whether all promising points were tried; False if the budget was too small.
        report: the load report of the best point's validation.
        objective: the search's objective.
        client_batching: settings with which clients hold a higher rate of items at the best point; None if none were
            found or sought.
        target: the target of a build for which the model was tuned.
        gpus: the names of the machine's GPUs, for a target with GPUs.
    """

    slo: Slo
    now: Point
    best: Evaluation | None
    current: Evaluation | None
    evaluations: tuple[Evaluation, ...]
    costs: Mapping[InstanceGroup, Costs]
    predicted: Mapping[Point, float]
    measurements: int
    seconds: float
    ended: str = ""
    report: OpenReport | None = None
    objective: Objective = field(default_factory=Objective)
    client_batching: ClientBatching | None = None
    complete: bool = True
    target: Target = "cpu"
    gpus: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "slo": str(self.slo),
            "target": self.target,
            "gpus": list(self.gpus),
            "objective": asdict(self.objective),
            "best": None if self.best is None else asdict(self.best),
            "current": None if self.current is None else asdict(self.current),
            "gain": self.gain,
            "limit": "" if self.best else self.limit,
            "evaluations": [asdict(evaluation) for evaluation in self.evaluations],
            "costs": [asdict(group) | asdict(costs) for group, costs in self.costs.items()],
            "measurements": self.measurements,
            "seconds": self.seconds,
            "ended": self.ended,
            "complete": self.complete,
            "client_batching": None if self.client_batching is None else asdict(self.client_batching),
            "report": None if self.report is None else self.report.to_dict(),
        }

    @property
    def machine(self) -> str:
        """The target and the GPUs for which these figures hold; empty for the CPU alone."""
        if self.target == "cpu":
            return ""
        names = [f"{self.gpus.count(name)} x {name}" if self.gpus.count(name) > 1 else name for name in self.gpus]
        return f"target {self.target}, {', '.join(dict.fromkeys(names)) or 'GPUs of the server'}"

    @property
    def answered(self) -> list[tuple[float, float, Point]]:
        """Rate, tail in milliseconds and way of serving of each run under load that had an answer."""
        return [
            (trial.rate_per_s, trial.tail_ms, evaluation.point)
            for evaluation in self.evaluations
            for trial in evaluation.trials
            if trial.tail_ms is not None
        ]

    @property
    def limit(self) -> str:
        """The point that came closest to the target, and the reason why nothing holds it, if nothing does."""
        percent, target_ms = self.slo.tightest
        alone = [
            (simulate_alone(SimulatedBatcher(group.all_instances, 1), costs).percentile_ms(percent), group)
            for group, costs in self.costs.items()
        ]
        parts = []
        if self.answered:
            tail, rate, point = min((tail, rate, point) for rate, tail, point in self.answered)
            parts.append(f"closest: p{percent:g} of {tail:.1f} ms at {rate:.1f}/s, {point}")
        if alone:
            least, group = min(alone)
            parts.append(f"alone, a request takes {least:.1f} ms at p{percent:g} with {group}")
            parts.append(
                "so it is the runs themselves that take too long: other variants (--variants spec) may hold it"
                if least > _MOST_ALONE * target_ms
                else "so it is the queue or a busy machine"
            )
        return "; ".join(parts)

    @property
    def gain(self) -> float | None:
        """The ratio of the best to the way that is served now; None if either is unknown."""
        best, now = self.objective.value(self.best), self.objective.value(self.current)
        return best / now if best and now else None


class Listener:
    """Events of a search; every method does nothing here."""

    def stage(self, stage: Stage, text: str) -> None:
        """A step of the search begins."""

    def trial(self, point: Point, trial: RateTrial) -> None:
        """A run under load is over."""

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """A point was evaluated."""
