"""`tritonkit load MODEL --rate`: requests that leave at their moments, whatever the server does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.cli.started import called
from tritonkit.errors import UsageError
from tritonkit.machine import cores
from tritonkit.perf.commands.load_names import check_names
from tritonkit.perf.commands.load_options import LoadOptions
from tritonkit.perf.commands.metrics_of import metrics_of
from tritonkit.perf.commands.report_files import this_command, write_reports, written_now

if TYPE_CHECKING:
    from tritonkit.perf.load.openloop import Arrivals, OpenLoad, OpenReport, RateSearch, RateTrial, Slo, Times
    from tritonkit.perf.load.openloop.arrivals import Kind, Moments
    from tritonkit.perf.load.openloop.page import RunText

__all__ = [
    "DURATION_S",
    "INTERRUPTED_CODE",
    "find_highest",
    "load_at_rate",
    "open_load",
    "report_page",
    "tell_invalid",
]

INTERRUPTED_CODE = 130
DURATION_S = 20.0
_WARM_S, _TRIAL_S, _TIMEOUT_S, _CV = 1.0, 5.0, 10.0, 4.0
_LOOPBACK = ("127.", "localhost", "[::1]")


def load_at_rate(project: Path, address: str | None, options: LoadOptions) -> None:
    """Check what can be checked before a server is started, then send; `typer.Exit` with 1 where a target is missed or
    the run is not valid, with 130 after an interrupt."""
    from tritonkit.perf.load.openloop import Slo, moments_of, parse_slo
    from tritonkit.perf.load.openloop.arrivals import KINDS

    if options.find and not options.slo:
        raise UsageError("--find-rate", found="no --slo", wanted="a target, such as --slo p99=20ms")
    if options.find and (options.shape.value != "steady" or options.arrivals not in (None, *KINDS)):
        raise UsageError("--find-rate", found="a rate that changes, or a trace", wanted="a steady rate")
    slo = parse_slo(options.slo) if options.slo else Slo({})
    load = open_load(options, slo)
    if not options.find:
        moments_of(load)
    check_names(project, options.models, address, options.whole_inputs)
    first, *others = (address or "").split(",")
    with called(project, project / "model_repository", options.models, first or None) as (grpc, _):
        _run(project, (grpc, *others), options, load, slo)


def _run(project: Path, addresses: Sequence[str], options: LoadOptions, load: OpenLoad, slo: Slo) -> None:
    """Run the load or the search, print what it showed, write the reports."""
    from tritonkit.perf.load.gpu import keep_gpus
    from tritonkit.perf.load.kinds import SEQUENCE_CALLS
    from tritonkit.perf.load.openloop import Generator

    search: RateSearch[OpenReport] | None = None
    note(f"making requests for {', '.join(options.models)} at {', '.join(addresses)} ...")
    calls = options.sequence_calls or SEQUENCE_CALLS
    metrics = tuple(metrics_of(project, addresses, options.metrics).values())
    timeout_s = _TIMEOUT_S if options.timeout_s is None else options.timeout_s
    with Generator(project, options.models, addresses, timeout_s, options.whole_inputs, calls, metrics) as generator:
        if options.find:
            search = find_highest(generator, slo, options, _TRIAL_S)
            report = search.report
            if generator.unit == "requests":
                _keep(project, addresses, options, slo, search)
        else:
            what = "the trace" if load.trace is not None else f"{load.rate_per_s:g} {generator.unit}/s"
            note(f"{what} for {load.duration_s:g} s ...")
            report = generator.run(load)
    if report is not None and len(options.models) == 1:
        keep_gpus(project, options.models[0], "load", report.series[0].rate_per_s, report.gpu)
    if options.report is not None:
        _write(options.report, report, search, slo, options, addresses)
    if options.as_json:
        shown = search or report
        print_json(({} if shown is None else shown.to_dict()) | {"slo": str(slo)})
    else:
        if search:
            print_line(search.summary)
        if report:
            _print(report)
    _end(report, search, slo)


def _keep(
    project: Path, addresses: Sequence[str], options: LoadOptions, slo: Slo, search: RateSearch[OpenReport]
) -> None:
    """Note the rate of a model on this machine, for a plan to be compared with."""
    from tritonkit.perf.load.rates import keep_rate

    whole = bool(search.rate_per_s) and not search.ended
    if whole and len(options.models) == 1 and _is_local(addresses):
        keep_rate(project, options.models[0], str(slo), search.rate_per_s, "load --find-rate")


def open_load(options: LoadOptions, slo: Slo, recorded: Moments | None = None) -> OpenLoad:
    """The run that the options ask for.

    Args:
        recorded: moments to send at where `--arrivals` says nothing.

    Raises:
        UsageError: a trace file that cannot be read, or an option that does not go with it.
    """
    from tritonkit.perf.load.openloop import OpenLoad, read_trace
    from tritonkit.perf.load.openloop.arrivals import KINDS

    moments, duration_s = recorded if options.arrivals is None else None, options.duration_s
    if options.arrivals not in (None, *KINDS):
        moments = read_trace(Path(options.arrivals or ""))
    if moments is not None:
        moments, duration_s = _stretched(moments, options.rate_per_s, duration_s)
    warm_s = _WARM_S if options.warm_s is None else options.warm_s
    return OpenLoad(
        options.rate_per_s or 1.0,
        duration_s or DURATION_S,
        warm_s if moments is None else 0.0,
        _arrivals(options),
        moments,
        options.processes,
        slo=slo,
    )


def _arrivals(options: LoadOptions) -> Arrivals:
    from tritonkit.perf.load.openloop import Arrivals
    from tritonkit.perf.load.openloop.arrivals import KINDS

    kind = options.arrivals if options.arrivals in KINDS else "poisson"
    cv = 1.0 if kind != "bursty" else _CV if options.cv is None else options.cv
    return Arrivals(cast("Kind", kind), cv, options.shape.value, options.seed or 0)


def _stretched(trace: Moments, rate_per_s: float | None, duration_s: float | None) -> tuple[Moments, float]:
    """Recorded moments at another rate, where there is one, and how long they last, at most as long as is said."""
    if rate_per_s is not None:
        own_per_s = len(trace) / max(float(trace[-1]), 1e-3)
        trace = trace * (own_per_s / rate_per_s)
    whole_s = float(trace[-1]) + 1e-3
    return trace, whole_s if duration_s is None else min(duration_s, whole_s)


def find_highest(generator: Any, slo: Slo, options: LoadOptions, trial_s: float) -> Any:
    """The search for the highest rate that holds the target; generator and result are of one kind of report."""
    from tritonkit.perf.load.openloop import find_rate

    note(f"looking for the highest rate that holds {slo} ...")
    return find_rate(
        generator,
        slo,
        start_per_s=options.rate_per_s,
        trial_s=options.duration_s or trial_s,
        arrivals=_arrivals(options),
        processes=options.processes,
        unit=getattr(generator, "unit", "requests"),
        say=_say,
    )


def _say(trial: RateTrial) -> None:
    tail = "no right answer" if trial.tail_ms is None else f"{trial.tail_ms:.2f} ms"
    verdict = "holds" if trial.holds else "missed"
    late = "" if trial.valid else " (the generator was late)"
    note(f"  {trial.rate_per_s:9.1f}/s: {tail}: {verdict}{late}")


def _end(report: OpenReport | None, search: RateSearch[OpenReport] | None, slo: Slo) -> None:
    """Say what was missed, and the exit code."""
    from tritonkit.perf.load.openloop import INTERRUPTED

    if search:
        if search.ended == INTERRUPTED:
            raise typer.Exit(INTERRUPTED_CODE)
        if search.ended:
            note(f"ended early: {search.ended}")
        raise typer.Exit(0 if search.rate_per_s and not search.ended else 1)
    assert report is not None  # noqa: S101
    for line in report.missed:
        note(f"missed: {line}")
    is_valid = tell_invalid(report.invalid, bool(slo.percentiles) and not report.missed)
    if report.ended == INTERRUPTED:
        note("interrupted: the figures cover the requests that were sent")
        raise typer.Exit(INTERRUPTED_CODE)
    if report.ended:
        note(f"ended early: {report.ended}")
    if report.missed or not is_valid or report.ended:
        raise typer.Exit(1)
    if slo.percentiles:
        note(f"the target {slo} holds")


def tell_invalid(invalid: Sequence[str], holds: bool) -> bool:
    """Report if the generator was the bottleneck; return whether the run's verdict stands anyway.

    Latency counts from when a request was due, so the generator's own lateness is in it: a target that holds
    with that holds without it.
    """
    for line in invalid:
        note(f"{'counted in' if holds else 'not valid'}: {line}")
    return holds or not invalid


def _print(report: OpenReport) -> None:
    from tritonkit.perf.load.gpu import gpu_lines
    from tritonkit.perf.load.openloop.page import answers_line
    from tritonkit.perf.load.openloop.units import named_times

    rows = []
    for series in report.series:
        head = [series.model, f"{series.offered_per_s:.1f}", f"{series.rate_per_s:.1f}", str(series.failures)]
        for name, _, times in named_times(series):
            rows.append([*head, name, *_cells(times)])
            head = [""] * 4
    points = [f"p{p:g}" for p in (report.series[0].latency or report.lag).percentiles]
    columns = ["model", "due/s", "right/s", "failed", "from", *points, "largest"]
    print_table(f"Open-loop load, {report.duration_s:.1f} s; ms", columns, rows)
    shares = ", ".join(f"{share:.0%}" for share in report.cpu_shares)
    lag = report.lag
    print_line(
        f"generator: sent {lag.at(50):.2f} ms late in the median, {lag.at(99):.2f} ms at p99; {shares} of a core"
    )
    for line in gpu_lines(report.gpu):
        print_line(line)
    for series in report.series:
        if series.answers:
            print_line(f"{series.model}: due/s, right/s and failed are {series.unit}.{answers_line(series)}")
        for words, count in sorted(series.words.items(), key=lambda pair: -pair[1])[:5]:
            note(f"{series.model}: {count} failed: {words}")


def _cells(times: Times | None) -> list[str]:
    if times is None:
        return ["-"] * 6
    return [*(f"{estimate.value:.2f}" for estimate in times.percentiles.values()), f"{times.largest:.2f}"]


def _write(
    folder: Path,
    report: OpenReport | None,
    search: RateSearch[OpenReport] | None,
    slo: Slo,
    options: LoadOptions,
    addresses: Sequence[str],
) -> None:
    """report.html, report.json, seconds.csv and counters.csv."""
    from tritonkit.perf.load.openloop import counters_csv, run_text, seconds_csv

    if report is None:
        return
    title = f"{', '.join(options.models)} under open-loop load"
    files = {
        "report.html": report_page(report, run_text(report, slo), search, slo, addresses, title),
        "report.json": json.dumps((search or report).to_dict(), indent=1) + "\n",
        "seconds.csv": seconds_csv(report),
        "counters.csv": counters_csv(report),
    }
    write_reports(folder, files)


def report_page(
    report: Any, text: RunText, search: RateSearch[Any] | None, slo: Slo, addresses: Sequence[str], title: str
) -> str:
    """The page about a load that this command sent."""
    from tritonkit.perf.load.openloop import page
    from tritonkit.repository.report import this_machine

    return page(
        report,
        text,
        this_machine(cores()),
        written_now(),
        title=title,
        slo=slo,
        search=search,
        command=this_command(),
        local=_is_local(addresses),
    )


def _is_local(addresses: Sequence[str]) -> bool:
    """Whether all servers run on this machine."""
    return all(address.startswith(_LOOPBACK) for address in addresses)
