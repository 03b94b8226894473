"""The input of a plan: measurements of one replica on the machine that serves it, and their file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tritonkit.disk import unwritable
from tritonkit.errors import ClientError, PublishError, RenderError, ServerError, UsageError
from tritonkit.extras import need_package
from tritonkit.machine import cores
from tritonkit.perf.load.gpu import GpuReport, GpuWatch
from tritonkit.perf.simulation import Costs, calibrated
from tritonkit.perf.tune.costs import observe, saturated_per_s
from tritonkit.perf.tune.run import Ready, TunePlan, prepared
from tritonkit.perf.tune.space import InstanceGroup, Point
from tritonkit.repository.report import this_machine

__all__ = ["OBSERVED", "Measured", "measure", "read_measured"]

_VERSION = 1
OBSERVED = (0.4, 0.6, 0.8, 0.95)
"""Shares of the server's highest rate at which it is measured under load."""
_OBSERVED_S, _SATURATED_S = 10.0, 1.0
_TRIES = 3
"""Attempts of the runs under load: if other programs take the machine's cores meanwhile, requests fail."""
_USED = 0.01
"""Share of time in use from which on a GPU counts as one that serves."""
_FAILURES = (ClientError, ServerError, RenderError, PublishError)


@dataclass(frozen=True)
class Measured:
    """One replica of a model.

    Args:
        now: the present way of serving.
        costs: costs of runs, for the present way's variant, instances and threads, and for others.
        batches: batch limits that could be set.
        start_s: seconds from a server's start until it answered with this model.
        processor, cores: the machine's processor and number of cores.
        most_per_s: the highest measured rate of answers; 0 if it was not noted.
        gpus: the number of GPUs that it used.
        energy_per_request_j: energy of these GPUs for a request under load; None if the server counts none.
    """

    model: str
    now: Point
    costs: Mapping[InstanceGroup, Costs]
    batches: tuple[int, ...]
    start_s: float
    processor: str
    cores: int
    most_per_s: float = 0.0
    gpus: int = 0
    energy_per_request_j: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "version": _VERSION,
            "model": self.model,
            "now": asdict(self.now),
            "costs": [{"group": asdict(g), "costs": asdict(c)} for g, c in self.costs.items()],
            "batches": list(self.batches),
            "start_s": self.start_s,
            "processor": self.processor,
            "cores": self.cores,
            "most_per_s": self.most_per_s,
            "gpus": self.gpus,
            "energy_per_request_j": self.energy_per_request_j,
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Measured:
        """The inverse of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: the values are not those of `to_dict`.
        """
        if facts["version"] != _VERSION:
            raise ValueError(f"version {facts['version']}")
        costs = {
            InstanceGroup(**row["group"]): Costs(
                **row["costs"] | {name: tuple(row["costs"][name]) for name in ("weights", "shapes", "factors")}
            )
            for row in facts["costs"]
        }
        now = Point.from_dict(facts["now"])
        if now.group not in costs:
            raise ValueError(f"no costs of {now.group}")
        return cls(
            str(facts["model"]),
            now,
            costs,
            tuple(facts["batches"]),
            float(facts["start_s"]),
            str(facts["processor"]),
            int(facts["cores"]),
            float(facts.get("most_per_s", 0.0)),
            int(facts.get("gpus", 0)),
            None if (energy_j := facts.get("energy_per_request_j")) is None else float(energy_j),
        )

    def save(self, file: Path) -> None:
        """Write it to a file, so that it can be read on another machine."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise unwritable(file, error) from error


def read_measured(file: Path, option: str = "--measured") -> Measured:
    """Read what `save` wrote.

    Args:
        option: the option that named the file.

    Raises:
        UsageError: it cannot be read, or is another kind of file.
    """
    try:
        return Measured.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
        raise UsageError(f"{option} {file}", found=problem, wanted="a file of `tritonkit plan --save`") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{option} {file}",
            found=f"it is not a measurement of this version: {error}",
            wanted="a file that `tritonkit plan --save` wrote",
        ) from None


def measure(plan: TunePlan, say: Callable[[str], None] = lambda _: None) -> Measured:
    """Measure a model of a project on an embedded server: some seconds for each variant with each number of
    instances and threads, and runs at some rates in the present way, against which the costs are calibrated. Ways
    that cannot be served are left out.

    Raises:
        SpecError, UsageError, BuildError, ServerError: see `tune.run.tune`; UsageError also if SciPy is missing.
        ClientError: the present way cannot be measured.
    """
    need_package("scipy.optimize", "tritonkit[plan]")
    with prepared(plan) as ready:
        start_s = ready.start_s
        groups = sorted({ready.now.group, *ready.space.groups})
        groups.sort(key=lambda group: group != ready.now.group)
        costs: dict[InstanceGroup, Costs] = {}
        slower, most_per_s, gpu = 1.0, 0.0, None
        for number, group in enumerate(groups, 1):
            say(f"costs of runs, {number} of {len(groups)}: {group}")
            try:
                if group == ready.now.group:
                    costs[group], slower, most_per_s, gpu = _now(ready, say)
                    continue
                most = max((p.max_batch_size for p in ready.space.points(group)), default=1)
                ready.server.serve(Point(group, most))
                group_costs = ready.server.costs(ready.generator, ready.shapes)
            except _FAILURES as error:
                if group == ready.now.group:
                    raise
                say(f"cannot be served: {str(error).splitlines()[0]}")
            else:
                costs[group] = replace(
                    group_costs, fixed_s=slower * group_costs.fixed_s, item_s=slower * group_costs.item_s
                )
        return Measured(
            plan.model,
            ready.now,
            costs,
            ready.space.batches,
            start_s,
            this_machine(cores()).processor,
            cores(),
            most_per_s,
            *_used(gpu),
        )


def _used(gpu: GpuReport | None) -> tuple[int, float | None]:
    """The number of GPUs that the load used, and their energy for a request; idle ones of the machine do not count."""
    used = tuple(use for use in gpu.gpus if use.busy is not None and use.busy >= _USED) if gpu else ()
    return len(used), GpuReport(used, gpu.answered).energy_per_request_j if gpu and used else None


def _now(ready: Ready, say: Callable[[str], None]) -> tuple[Costs, float, float, GpuReport | None]:
    """Costs of the present way, the factor by which its runs take longer under load than one by one, its highest
    rate of answers, and the GPUs under load."""
    generator, instances = ready.generator, ready.now.group.all_instances
    costs = ready.server.costs(generator, ready.shapes)
    network = ready.spec.network_name
    for tries_left in reversed(range(_TRIES)):
        most_per_s = saturated_per_s(generator, network, instances, _SATURATED_S)
        rates = [share * most_per_s for share in OBSERVED]
        say(f"under load: {', '.join(f'{rate:.0f}' for rate in rates)} requests/s")
        try:
            with GpuWatch(generator.metrics) as gpus:
                start = time.monotonic()
                runs = observe(generator, rates, _OBSERVED_S)
                seconds = time.monotonic() - start
            break
        except ClientError as error:
            if not tries_left:
                raise
            say(f"again, because the machine does less than a moment ago: {error.found}")
    fitted = calibrated(costs, ready.now.batcher, runs)
    answered = sum(len(run.moments) for run in runs)
    gpu = gpus.report(start, seconds, answered)
    return fitted, fitted.run_s(1.0) / max(costs.run_s(1.0), 1e-9), most_per_s, gpu
