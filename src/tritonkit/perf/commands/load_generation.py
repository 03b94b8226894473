"""`tritonkit load` of a language model: streams at a rate, or of so many users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tritonkit.cli.options import refuse
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.cli.started import called
from tritonkit.errors import ModelNotFound, UsageError
from tritonkit.perf.commands.load_open import stretched
from tritonkit.perf.commands.load_shown import end_generation, print_generation, write_generation
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from tritonkit.perf.load.generation import GenerationReport, TextGenerator, TextTraffic, Trace
    from tritonkit.perf.load.openloop import OpenLoad, RateSearch, RateTrial, Slo
    from tritonkit.perf.load.openloop.arrivals import Kind

__all__ = ["GenerationOptions", "has_language_model", "load_language_model"]

_DURATION_S, _WARM_S, _USERS, _TIMEOUT_S = 20.0, 1.0, 20, 120.0
_CV = 4.0
_LENGTHS = "sharegpt"


@dataclass(frozen=True)
class GenerationOptions:
    """What the command line asks for; None where it says nothing."""

    model: str
    rate_per_s: float | None
    find: bool
    users: int | None
    duration_s: float | None
    warm_s: float | None
    slo: tuple[str, ...]
    arrivals: str | None
    cv: float | None
    shape: str
    prompt_tokens: str | None
    output_tokens: str | None
    trace: Path | None
    shared_prefix: int | None
    timeout_s: float | None
    tier: str | None
    thresholds: Path | None
    seed: int
    report: Path | None
    as_json: bool


@dataclass(frozen=True)
class _Asked:
    """The options, read: what is sent, how, and what is wanted of it."""

    traffic: TextTraffic
    slo: Slo
    min_rate: float | None
    open: OpenLoad | None
    """None: a closed loop."""


def has_language_model(project: Path, names: Sequence[str], address: str | None) -> bool:
    """Whether the only model that is named is a language model: by its spec, or where the project has none by the
    tensors that the server says.

    Raises:
        UsageError: there is one among several.
        SpecError: a spec that cannot be read.
        ClientError: the server does not answer.
    """
    found = [name for name in dict.fromkeys(names) if _is_language_model(project, name, address)]
    if found and len({*names}) > 1:
        raise UsageError(
            "MODEL", found=f"{found[0]}, a language model, among others", wanted="it alone, as its load is another"
        )
    return bool(found)


def _is_language_model(project: Path, name: str, address: str | None) -> bool:
    from tritonkit.client import Client
    from tritonkit.perf.load.generation import is_language_model
    from tritonkit.repository.modelspec import load

    folder = project / "models" / name
    if (folder / "model.yaml").is_file():
        return load(folder, project).model.network.llm is not None
    if address is None:
        return False
    with Client(address.split(",")[0], retry=None, breaker=None) as client:
        try:
            return is_language_model(client, name)
        except ModelNotFound:
            return False


def load_language_model(project: Path, address: str | None, options: GenerationOptions) -> None:
    """Check what can be checked before a server is started, then send; `typer.Exit` as `run_open`."""
    asked = _read(project, options)
    folder = project / "model_repository"
    first, *others = (address or "").split(",")
    with called(project, folder, [options.model], first or None) as (grpc, _):
        _run((grpc, *others), asked, options)


def _read(project: Path, options: GenerationOptions) -> _Asked:
    """Read all that stands on the command line and in files.

    Raises:
        UsageError: it says nothing that can be.
        SpecError: the thresholds file.
    """
    from tritonkit.perf.load.generation import TextTraffic, parse_lengths, read_token_trace
    from tritonkit.perf.load.openloop import moments_of
    from tritonkit.perf.load.openloop.arrivals import KINDS

    slo, min_rate = _target(project, options)
    trace = read_token_trace(options.trace) if options.trace else None
    traffic = TextTraffic(
        parse_lengths("--prompt-tokens", options.prompt_tokens or _LENGTHS),
        parse_lengths("--output-tokens", options.output_tokens or _LENGTHS),
        options.shared_prefix or 0,
        trace,
    )
    replayed = trace is not None and trace.seconds is not None and options.users is None
    is_file = options.arrivals is not None and options.arrivals not in KINDS
    is_open = options.rate_per_s is not None or options.find or is_file or replayed
    _check(options, is_open, is_file or (replayed and options.arrivals is None and not options.find))
    load = _open_load(options, slo, trace) if is_open else None
    if options.find and not (slo.percentiles or slo.ttft or slo.itl):
        raise UsageError(
            "--find-rate",
            found="no --slo, and no limit of times in the thresholds file",
            wanted="a target, such as --slo ttft_p99=500ms",
        )
    if load is not None and not options.find:
        moments_of(load)
    return _Asked(traffic, slo, min_rate, load)


def _check(options: GenerationOptions, is_open: bool, is_trace: bool) -> None:
    """Refuse options that have no meaning beside the others.

    Args:
        is_trace: whether requests leave at recorded moments.
    """
    shape = None if options.shape == "steady" else options.shape
    drawn: dict[str, object] = {"--cv": options.cv, "--shape": shape}
    if not is_open:
        refuse({"--arrivals": options.arrivals} | drawn, "--rate or --find-rate")
    else:
        refuse({"--users": options.users}, "a closed loop, so not with --rate, --find-rate or a trace")
    if is_trace:
        refuse(drawn | {"--warm-up": options.warm_s}, "drawn arrivals, so not with a trace")
    elif options.arrivals != "bursty":
        refuse({"--cv": options.cv}, "--arrivals bursty")
    if is_open and not (is_trace or options.find) and options.rate_per_s is None:
        raise UsageError("--arrivals", found="no --rate", wanted="requests a second, such as --rate 2")
    if options.find and (shape or is_trace):
        raise UsageError("--find-rate", found="a rate that changes, or a trace", wanted="a steady rate")
    if options.slo:
        given = {"--tier": options.tier, "--thresholds": options.thresholds}
        refuse(given, "no --slo, which goes before the thresholds file")
    if options.trace:
        lengths = {"--prompt-tokens": options.prompt_tokens, "--output-tokens": options.output_tokens}
        refuse(lengths, "no --trace, which has its own")


def _warm_s(options: GenerationOptions) -> float:
    return _WARM_S if options.warm_s is None else options.warm_s


def _cv(options: GenerationOptions) -> float:
    """Of the gaps between arrivals."""
    return 1.0 if options.arrivals != "bursty" else _CV if options.cv is None else options.cv


def _target(project: Path, options: GenerationOptions) -> tuple[Slo, float | None]:
    """What is wanted: by --slo, or else by the thresholds file; and right answers a second by that."""
    from tritonkit.perf.load import limits_for, read_thresholds
    from tritonkit.perf.load.locust_run import THRESHOLDS
    from tritonkit.perf.load.openloop import parse_slo

    if options.slo:
        return parse_slo(options.slo, language=True), None
    file = (options.thresholds or own_or_shipped(project, THRESHOLDS)).resolve()
    known = [path.parent.name for path in (project / "models").glob("*/model.yaml")]
    thresholds = read_thresholds(file, [*known, options.model])
    limits = limits_for(thresholds, options.model, options.tier, language=True)
    return limits.slo, limits.min_rate


def _open_load(options: GenerationOptions, slo: Slo, trace: Trace | None) -> OpenLoad:
    from tritonkit.perf.load.openloop import Arrivals, OpenLoad, read_trace
    from tritonkit.perf.load.openloop.arrivals import KINDS

    arrivals, moments = options.arrivals, None
    duration_s = options.duration_s
    if arrivals is not None and arrivals not in KINDS:
        moments = read_trace(Path(arrivals))
    elif arrivals is None and trace is not None and not options.find:
        moments = trace.seconds
    if moments is not None:
        moments, duration_s = stretched(moments, options.rate_per_s, duration_s)
    kind = cast("Kind", arrivals if arrivals in KINDS else "poisson")
    drawn = Arrivals(kind, _cv(options), options.shape, options.seed)
    return OpenLoad(
        options.rate_per_s or 1.0,
        duration_s or _DURATION_S,
        _warm_s(options) if moments is None else 0.0,
        drawn,
        moments,
        slo=slo,
    )


def _run(addresses: Sequence[str], asked: _Asked, options: GenerationOptions) -> None:
    """Run the load or the search, print what it showed, write the reports."""
    from tritonkit.perf.load.generation import TextGenerator

    search: RateSearch[GenerationReport] | None = None
    report: GenerationReport | None
    note(f"looking at {options.model} at {', '.join(addresses)} ...")
    timeout_s = _TIMEOUT_S if options.timeout_s is None else options.timeout_s
    with TextGenerator(options.model, addresses, asked.traffic, timeout_s, asked.min_rate) as generator:
        if options.find:
            search = _find(generator, asked.slo, options)
            report = search.report
        else:
            report = _loaded(generator, asked, options)
    if options.report is not None and report is not None:
        write_generation(options.report, report, search, asked.slo, addresses)
    if options.as_json:
        shown = search or report
        print_json(({} if shown is None else shown.to_dict()) | {"slo": str(asked.slo)})
    else:
        if search:
            print_line(search.summary)
        if report:
            print_generation(report)
    end_generation(report, search, asked.slo)


def _loaded(generator: TextGenerator, asked: _Asked, options: GenerationOptions) -> GenerationReport:
    from tritonkit.perf.load.generation import ClosedLoad

    if asked.open is not None:
        moments = asked.open.trace is not None
        said = "the trace" if moments else f"{asked.open.rate_per_s:g} requests/s"
        note(f"{said} for {asked.open.duration_s:g} s ...")
        return generator.run(asked.open)
    users, duration_s = options.users or _USERS, options.duration_s or _DURATION_S
    note(f"{users} streams at the same time for {duration_s:g} s ...")
    return generator.run_closed(ClosedLoad(users, duration_s, _warm_s(options), options.seed, asked.slo))


def _find(generator: TextGenerator, slo: Slo, options: GenerationOptions) -> RateSearch[GenerationReport]:
    from tritonkit.perf.load.openloop import Arrivals, find_rate

    kind = cast("Kind", options.arrivals or "poisson")

    def say(trial: RateTrial) -> None:
        tail = "-" if trial.tail_ms is None else f"{trial.tail_ms:.1f} ms"
        held = "holds" if trial.holds else "missed"
        note(f"{trial.rate_per_s:.2f}/s for {trial.duration_s:.1f} s: {tail}, {held}")

    note(f"looking for the highest rate that holds {slo} ...")
    return find_rate(
        generator,
        slo,
        start_per_s=options.rate_per_s,
        trial_s=options.duration_s or _DURATION_S,
        arrivals=Arrivals(kind, _cv(options), seed=options.seed),
        say=say,
    )
