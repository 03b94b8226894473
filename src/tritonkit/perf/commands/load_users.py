"""`tritonkit load MODEL` with users who wait for their answers: a closed loop, judged by a file of thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tritonkit.cli.fields import as_text
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.cli.started import called
from tritonkit.errors import UsageError
from tritonkit.perf.commands.load_names import check_names
from tritonkit.perf.commands.load_open import INTERRUPTED_CODE
from tritonkit.perf.commands.load_options import LoadOptions
from tritonkit.perf.commands.metrics_of import metrics_of
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from tritonkit.perf.load import LoadOutcome, Report

__all__ = ["load_users"]

_USERS, _DURATION_S, _THINK_TIME_S = 20, 20.0, 0.1


def load_users(project: Path, address: str | None, options: LoadOptions) -> None:
    """Run Locust's users, print what they saw; `typer.Exit` with 1 where a limit is missed, 130 after an interrupt."""
    from tritonkit.perf.load import LoadPlan, run_load
    from tritonkit.perf.load.gpu import keep_gpus
    from tritonkit.perf.load.kinds import SEQUENCE_CALLS
    from tritonkit.perf.load.locust_run import THRESHOLDS

    file = (options.thresholds or own_or_shipped(project, THRESHOLDS)).resolve()
    users = options.users or _USERS
    duration_s = _whole_seconds(options.duration_s or _DURATION_S)
    pause_s = _THINK_TIME_S if options.think_time_s is None else options.think_time_s
    outside = _check(project, options.models, file, options.tier, address, options.whole_inputs)
    folder = project / "model_repository"
    with called(project, folder, options.models, address, options.http_address, http=options.rest) as (grpc, http):
        plan = LoadPlan(
            project,
            options.models,
            grpc,
            http_address=http if options.rest else None,
            users=users,
            duration_s=duration_s,
            shape=options.shape.value,
            think_time_us=round(1_000_000 * pause_s),
            thresholds=file,
            tier=options.tier,
            report=None if options.report is None else options.report.resolve(),
            inputs=options.whole_inputs,
            outside=outside,
            sequence_calls=options.sequence_calls or SEQUENCE_CALLS,
            metrics=tuple(metrics_of(project, [grpc], options.metrics).values()),
        )
        note(f"{users} users for {duration_s} s against {grpc} ...")
        outcome = run_load(plan)
    if len(options.models) == 1:
        rate_per_s = sum(series.rate_per_s for series in outcome.report.series)
        keep_gpus(project, options.models[0], f"load --users {users}", rate_per_s, outcome.report.gpu)
    _print_outcome(outcome, options.as_json)
    if options.report is not None:
        note(f"reports: {options.report}")
    if outcome.interrupted:
        note("interrupted: the figures cover the requests that were sent")
        raise typer.Exit(INTERRUPTED_CODE)
    if outcome.missed:
        raise typer.Exit(1)


def _check(
    project: Path, names: Sequence[str], file: Path, tier: str | None, address: str | None, inputs: Sequence[str]
) -> bool:
    """Refuse wrong names before a server is started for them; whether one has no spec."""
    from tritonkit.perf.load import limits_for, read_thresholds

    outside = check_names(project, names, address, inputs)
    models = [path.parent.name for path in (project / "models").glob("*/model.yaml")]
    limits = read_thresholds(file, models)
    for name in names:
        limits_for(limits, name, tier)
    return outside


def _whole_seconds(time_s: float) -> int:
    if time_s < 1 or not time_s.is_integer():
        raise UsageError("--duration", found=as_text(time_s), wanted="whole seconds, at least 1s")
    return int(time_s)


def _print_outcome(outcome: LoadOutcome, as_json: bool) -> None:
    """The report on standard output, one line for each missed limit on standard error."""
    if as_json:
        missed: dict[str, Any] = {"holds": not outcome.missed, "missed": list(outcome.missed)}
        print_json(outcome.report.to_dict() | missed)
    else:
        _print(outcome.report)
    for line in outcome.missed:
        note(f"missed: {line}")
    if not outcome.missed and not outcome.interrupted:
        note("all limits hold")


def _print(report: Report) -> None:
    from tritonkit.perf.load.gpu import gpu_lines

    rows = [
        [
            series.model,
            series.protocol,
            str(series.requests),
            str(series.failures),
            f"{series.rate_per_s:.1f}",
            *(
                "-" if ms is None else f"{ms:.2f}"
                for ms in (series.p50_ms, series.p95_ms, series.p99_ms, series.largest_ms)
            ),
        ]
        for series in report.series
    ]
    columns = ["model", "over", "requests", "failed", "right/s", "p50 ms", "p95 ms", "p99 ms"]
    print_table(f"Load, {report.duration_s:.1f} s", [*columns, "largest ms"], rows)
    for line in gpu_lines(report.gpu):
        print_line(line)
