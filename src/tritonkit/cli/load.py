"""`tritonkit load`: requests from many users at once, and whether their answers came right and in time."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import AnyServer, AsJson, Root, project_folder
from tritonkit.cli.output import note, print_json, print_table
from tritonkit.cli.started import called
from tritonkit.errors import UsageError
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from tritonkit.measure import Outcome, Report

__all__ = ["command"]

_MICROSECONDS = 1_000_000


class ShapeName(StrEnum):
    """How the number of users changes during the run."""

    steady = "steady"
    ramp = "ramp"
    spike = "spike"
    step = "step"


def command(
    names: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Models of models/ to call.")
    ],
    users: Annotated[int, typer.Option(min=1, help="Callers at the same time, at most.")] = 20,
    duration: Annotated[str, typer.Option(metavar="TIME", help="How long, such as 20s.")] = "20s",
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Judge by this tier of the thresholds file: interactive, standard, relaxed, batch; "
            "by what it says of the model by default.",
        ),
    ] = None,
    shape: Annotated[
        ShapeName, typer.Option(help="How the number of users changes.")
    ] = ShapeName.steady,
    think_time: Annotated[
        str,
        typer.Option(metavar="TIME", help="A user's pause before its next request, on average."),
    ] = "100ms",
    rest: Annotated[
        bool, typer.Option("--rest", help="Half of the users call over HTTP/REST, for comparison.")
    ] = False,
    address: AnyServer = None,
    http_address: Annotated[
        str | None,
        typer.Option(help="Its HTTP address, for --rest; port 8000 beside --address by default."),
    ] = None,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            help="File with limits; by default the project's loadtest/thresholds.yaml, or else tritonkit's."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.json and CSV files.")
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Load served models with Locust: every answer is checked, and limits decide the exit code.

    0 if all limits hold, 1 with a line for each that does not.

    Example: tritonkit load digits --users 20 --duration 20s --tier interactive
    """
    from tritonkit.measure import LoadPlan, run_load
    from tritonkit.measure.load import THRESHOLDS

    project = project_folder(root)
    file = (thresholds or own_or_shipped(project, THRESHOLDS)).resolve()
    folder = project / "model_repository"
    duration_s = _whole_seconds(duration)
    pause_us = _duration("--think-time", think_time)
    _check(project, names, file, tier)
    with called(project, folder, names, address, http_address, http=rest) as (grpc, http):
        plan = LoadPlan(
            project, tuple(dict.fromkeys(names)), grpc,
            http_address=http if rest else None, users=users, duration_s=duration_s,
            shape=shape.value, think_time_us=pause_us, thresholds=file, tier=tier,
            report=None if report is None else report.resolve(),
        )  # fmt: skip
        note(f"{users} users for {duration_s} s against {grpc} ...")
        outcome = run_load(plan)
    _print_outcome(outcome, as_json)
    if report is not None:
        note(f"reports: {report}")
    if outcome.missed:
        raise typer.Exit(1)


def _check(project: Path, names: list[str], file: Path, tier: str | None) -> None:
    """Refuse wrong names before a server is started for them."""
    from tritonkit.measure import limits_for, read_thresholds
    from tritonkit.spec import load_all

    load_all(project, tuple(names))
    known = [path.parent.name for path in (project / "models").glob("*/model.yaml")]
    limits = read_thresholds(file, known)
    for name in names:
        limits_for(limits, name, tier)


def _duration(option: str, text: str) -> int:
    from tritonkit.spec.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(option, found=str(error)) from None


def _whole_seconds(text: str) -> int:
    microseconds = _duration("--duration", text)
    if microseconds < _MICROSECONDS or microseconds % _MICROSECONDS:
        raise UsageError("--duration", found=text, wanted="whole seconds, at least 1s")
    return microseconds // _MICROSECONDS


def _print_outcome(outcome: Outcome, as_json: bool) -> None:
    """The report on standard output, one line for each missed limit on standard error."""
    if as_json:
        missed: dict[str, Any] = {"holds": not outcome.missed, "missed": list(outcome.missed)}
        print_json(outcome.report.to_dict() | missed)
    else:
        _print(outcome.report)
    for line in outcome.missed:
        note(f"missed: {line}")
    if not outcome.missed:
        note("all limits hold")


def _print(report: Report) -> None:
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
