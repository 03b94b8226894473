"""`tritonkit load`: requests from many users, or at a rate, and whether their answers came right and in time."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import AnyServer, AsJson, Root, project_folder, project_or_here, rate_per_s, refuse, seconds
from tritonkit.cli.output import note, print_json, print_table
from tritonkit.cli.started import called
from tritonkit.errors import UsageError
from tritonkit.perf.commands.load_generation import GenerationOptions, has_language_model, load_language_model
from tritonkit.perf.commands.load_names import check_names, whole_inputs
from tritonkit.perf.commands.load_open import INTERRUPTED_CODE, OpenOptions, open_load, run_open
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.perf.load import LoadOutcome, Report

__all__ = ["command"]

_KINDS = ("poisson", "constant", "bursty")


class ShapeName(StrEnum):
    """How the number of users, or the rate, changes during the run."""

    steady = "steady"
    ramp = "ramp"
    spike = "spike"
    step = "step"
    daily = "daily"


def command(
    names: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models of models/ to call.")],
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Open loop: so many requests, or sequences, a second, whatever the server does."
        ),
    ] = None,
    find: Annotated[
        bool, typer.Option("--find-rate", help="Open loop: find the highest rate that holds --slo.")
    ] = False,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="p99=20ms",
            help="Open loop, and language models: the target; percentiles, errors=0.1%, of a language model "
            "ttft_p99=500ms and itl_p99=50ms too.",
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long, such as 30s; 20s by default, of each trial of --find-rate 5s."),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="KIND|FILE",
            help="Open loop: poisson (default), constant, bursty, or a CSV file of recorded seconds.",
        ),
    ] = None,
    cv: Annotated[
        float | None, typer.Option(min=0.1, max=20, help="Coefficient of variation of bursty gaps; 4 by default.")
    ] = None,
    shape: Annotated[ShapeName, typer.Option(help="How the number of users, or the rate, changes.")] = ShapeName.steady,
    warm_up: Annotated[
        str | None, typer.Option(metavar="TIME", help="Open loop: load before what counts; 1s by default.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=64, help="Open loop: of the generator; by default as the rate wants.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Open loop: the same seed sends at the same moments.")] = None,
    users: Annotated[
        int | None, typer.Option(min=1, help="Closed loop: callers at the same time, at most; 20 by default.")
    ] = None,
    think_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Closed loop: a user's mean pause before its next request; 100ms by default."
        ),
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Closed loop: judge by this tier of the thresholds file: interactive, standard, relaxed, batch; "
            "by what it says of the model by default.",
        ),
    ] = None,
    rest: Annotated[
        bool, typer.Option("--rest", help="Closed loop: half of the users call over HTTP/REST, for comparison.")
    ] = False,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTHS",
            help="Language models: tokens of a prompt: N, A-B, lognormal:MEAN,SIGMA, or sharegpt (default).",
        ),
    ] = None,
    output_tokens: Annotated[
        str | None, typer.Option(metavar="LENGTHS", help="Language models: tokens of an answer, in the same way.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Language models: a CSV file with prompt_tokens, output_tokens and, if known, seconds of each "
            "request.",
        ),
    ] = None,
    shared_prefix: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Language models: so many tokens, always the same, before each prompt."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Open loop, and language models: an answer that takes longer has failed; 10s by default, of a "
            "language model 120s.",
        ),
    ] = None,
    sequence_calls: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=10_000, help="Models that keep state: calls of each sequence; 8 by default."
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="An input of the only model, as of `tritonkit call`; by default its own example or samples.",
        ),
    ] = None,
    address: AnyServer = None,
    http_address: Annotated[
        str | None, typer.Option(help="Its HTTP address, for --rest; port 8000 beside --address by default.")
    ] = None,
    thresholds: Annotated[
        Path | None, typer.Option(help="Closed loop: file with limits; loadtest/thresholds.yaml by default.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for report.html, report.json and CSV files.")] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Load served models; every answer is checked, and limits decide the exit code.

    With --rate or --find-rate requests leave at their moments, as from callers who know nothing of each
    other, and latency counts from when each was due. Without, Locust's users each wait for an answer.
    A language model gets streams of prompts and answers of drawn lengths, in either loop, and is judged by
    its first tokens and the time between tokens too. 0 if all limits hold, 1 with a line for each that does not.

    Example: tritonkit load digits --rate 200 --duration 30s --slo p99=20ms
    """
    of_language = {
        "--prompt-tokens": prompt_tokens,
        "--output-tokens": output_tokens,
        "--trace": trace,
        "--shared-prefix": shared_prefix,
    }
    opened = {
        "--slo": slo,
        "--arrivals": arrivals,
        "--cv": cv,
        "--warm-up": warm_up,
        "--processes": processes,
        "--seed": seed,
        "--timeout": timeout,
    }
    closed = {
        "--users": users,
        "--think-time": think_time,
        "--tier": tier,
        "--rest": rest or None,
        "--http-address": http_address,
        "--thresholds": thresholds,
    }
    project = project_folder(root) if address is None else project_or_here(root)
    given = whole_inputs(inputs or [], names)
    is_trace = arrivals is not None and arrivals not in _KINDS
    steady = None if shape is ShapeName.steady else shape
    if has_language_model(project, names, address):
        refuse(
            {
                "--processes": processes,
                "--think-time": think_time,
                "--rest": rest or None,
                "--http-address": http_address,
                "--input": inputs,
                "--sequence-calls": sequence_calls,
            },
            "a model that is no language model",
        )
        load_language_model(
            project,
            address,
            GenerationOptions(
                model=names[0],
                rate_per_s=rate_per_s(rate),
                find=find,
                users=users,
                duration_s=None if duration is None else seconds("--duration", duration, 0.001),
                warm_s=None if warm_up is None else seconds("--warm-up", warm_up),
                slo=tuple(slo or ()),
                arrivals=arrivals,
                cv=cv,
                shape=shape.value,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                trace=trace,
                shared_prefix=shared_prefix,
                timeout_s=None if timeout is None else seconds("--timeout", timeout, 0.001),
                tier=tier,
                thresholds=thresholds,
                seed=seed or 0,
                report=None if report is None else report.resolve(),
                as_json=as_json,
            ),
        )
        return
    refuse(of_language, "a language model (docs/llm.md)")
    if rate is None and not find and not is_trace:
        refuse(opened, "--rate or --find-rate")
        _closed_loop(
            project,
            names,
            users or 20,
            duration or "20s",
            tier,
            shape,
            think_time or "100ms",
            rest,
            address,
            http_address,
            thresholds,
            report,
            as_json,
            given,
            sequence_calls,
        )
        return
    refuse(closed, "a closed loop, so not with --rate, --find-rate or a trace")
    if is_trace:
        refuse({"--cv": cv, "--warm-up": warm_up, "--shape": steady}, "drawn arrivals, so not with a trace")
    elif arrivals != "bursty":
        refuse({"--cv": cv}, "--arrivals bursty")
    _open_loop(
        project,
        address,
        OpenOptions(
            models=tuple(dict.fromkeys(names)),
            rate_per_s=rate_per_s(rate),
            find=find,
            duration_s=None if duration is None else seconds("--duration", duration, 0.001),
            slo=tuple(slo or ()),
            arrivals=arrivals or "poisson",
            cv=4.0 if cv is None else cv,
            shape=shape.value,
            warm_s=seconds("--warm-up", warm_up or "1s"),
            processes=processes,
            seed=seed or 0,
            report=None if report is None else report.resolve(),
            as_json=as_json,
            given=given,
            timeout_s=seconds("--timeout", timeout or "10s", 0.001),
            sequence_calls=sequence_calls,
        ),
    )


def _open_loop(project: Path, address: str | None, options: OpenOptions) -> None:
    """Check what can be checked before a server is started, then send."""
    from tritonkit.perf.load.openloop import Slo, moments_of, parse_slo

    if options.find and not options.slo:
        raise UsageError("--find-rate", found="no --slo", wanted="a target, such as --slo p99=20ms")
    if options.find and (options.shape != "steady" or options.arrivals not in _KINDS):
        raise UsageError("--find-rate", found="a rate that changes, or a trace", wanted="a steady rate")
    load = open_load(options, parse_slo(options.slo) if options.slo else Slo({}))
    if not options.find:
        moments_of(load)
    check_names(project, options.models, address, options.given)
    folder = project / "model_repository"
    first, *others = (address or "").split(",")
    with called(project, folder, options.models, first or None) as (grpc, _):
        run_open(project, (grpc, *others), options)


def _closed_loop(
    project: Path,
    names: list[str],
    users: int,
    duration: str,
    tier: str | None,
    shape: ShapeName,
    think_time: str,
    rest: bool,
    address: str | None,
    http_address: str | None,
    thresholds: Path | None,
    report: Path | None,
    as_json: bool,
    given: tuple[str, ...],
    sequence_calls: int | None,
) -> None:
    from tritonkit.perf.load import LoadPlan, run_load
    from tritonkit.perf.load.kinds import SEQUENCE_CALLS
    from tritonkit.perf.load.locust_run import THRESHOLDS

    file = (thresholds or own_or_shipped(project, THRESHOLDS)).resolve()
    folder = project / "model_repository"
    duration_s = _whole_seconds(duration)
    pause_us = round(1_000_000 * seconds("--think-time", think_time))
    outside = _check(project, names, file, tier, address, given)
    with called(project, folder, names, address, http_address, http=rest) as (grpc, http):
        plan = LoadPlan(
            project,
            tuple(dict.fromkeys(names)),
            grpc,
            http_address=http if rest else None,
            users=users,
            duration_s=duration_s,
            shape=shape.value,
            think_time_us=pause_us,
            thresholds=file,
            tier=tier,
            report=None if report is None else report.resolve(),
            given=given,
            outside=outside,
            sequence_calls=sequence_calls or SEQUENCE_CALLS,
        )
        note(f"{users} users for {duration_s} s against {grpc} ...")
        outcome = run_load(plan)
    _print_outcome(outcome, as_json)
    if report is not None:
        note(f"reports: {report}")
    if outcome.interrupted:
        note("interrupted: the figures are of what was sent")
        raise typer.Exit(INTERRUPTED_CODE)
    if outcome.missed:
        raise typer.Exit(1)


def _check(
    project: Path, names: list[str], file: Path, tier: str | None, address: str | None, given: Sequence[str]
) -> bool:
    """Refuse wrong names before a server is started for them; whether one has no spec."""
    from tritonkit.perf.load import limits_for, read_thresholds

    outside = check_names(project, names, address, given)
    known = [path.parent.name for path in (project / "models").glob("*/model.yaml")]
    limits = read_thresholds(file, known)
    for name in names:
        limits_for(limits, name, tier)
    return outside


def _whole_seconds(text: str) -> int:
    found = seconds("--duration", text)
    if found < 1 or found != int(found):
        raise UsageError("--duration", found=text, wanted="whole seconds, at least 1s")
    return int(found)


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
