"""`tritonkit load` of a language model: streams at a rate, or of a number of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.cli.options import refuse
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.cli.started import called
from tritonkit.errors import ModelNotFound, UsageError
from tritonkit.perf.commands.load_open import DURATION_S, find_highest, open_load
from tritonkit.perf.commands.load_options import LoadOptions
from tritonkit.perf.commands.load_shown import end_generation, print_generation, write_generation
from tritonkit.perf.commands.metrics_of import metrics_of
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from tritonkit.perf.load.generation import GenerationReport, TextGenerator, TextTraffic
    from tritonkit.perf.load.openloop import OpenLoad, RateSearch, Slo

__all__ = ["has_language_model", "load_language_model"]

_WARM_S, _USERS, _TIMEOUT_S = 1.0, 20, 120.0
_LENGTHS = "sharegpt"


@dataclass(frozen=True)
class _Asked:
    """The load that the options describe: its requests, their times, and the target."""

    traffic: TextTraffic
    slo: Slo
    min_rate: float | None
    open: OpenLoad | None
    """None: a closed loop."""


def has_language_model(project: Path, names: Sequence[str], address: str | None) -> bool:
    """Whether the only model that is named is a language model, by its spec, or without one by the server's tensors.

    Raises:
        UsageError: a language model and others are named.
        SpecError: a spec that cannot be read.
        ClientError: the server does not answer.
    """
    language_models = [name for name in dict.fromkeys(names) if _is_language_model(project, name, address)]
    if language_models and len({*names}) > 1:
        raise UsageError(
            "MODEL",
            found=f"{language_models[0]}, a language model, and others",
            wanted="the language model alone: it cannot be loaded together with other models",
        )
    return bool(language_models)


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


def load_language_model(project: Path, address: str | None, options: LoadOptions) -> None:
    """Check what can be checked before a server is started, then send; `typer.Exit` as `load_at_rate`."""
    request = _read(project, options)
    folder = project / "model_repository"
    first, *others = (address or "").split(",")
    with called(project, folder, options.models, first or None) as (grpc, _):
        _run(project, (grpc, *others), request, options)


def _read(project: Path, options: LoadOptions) -> _Asked:
    """Read the options, and the files that they name.

    Raises:
        UsageError: options that contradict one another.
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
    recorded = None if trace is None or options.find else trace.seconds
    load = open_load(options, slo, recorded) if is_open else None
    if options.find and not (slo.percentiles or slo.ttft or slo.itl):
        raise UsageError(
            "--find-rate",
            found="no --slo, and no limit of times in the thresholds file",
            wanted="a target, such as --slo ttft_p99=500ms",
        )
    if load is not None and not options.find:
        moments_of(load)
    return _Asked(traffic, slo, min_rate, load)


def _check(options: LoadOptions, is_open: bool, is_trace: bool) -> None:
    """Refuse options that have no meaning next to the others.

    Args:
        is_trace: whether requests leave at recorded moments.
    """
    shape = None if options.shape.value == "steady" else options.shape
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
        rivals = {"--tier": options.tier, "--thresholds": options.thresholds}
        refuse(rivals, "no --slo, which goes before the thresholds file")
    if options.trace:
        lengths = {"--prompt-tokens": options.prompt_tokens, "--output-tokens": options.output_tokens}
        refuse(lengths, "no --trace, which has its own")


def _target(project: Path, options: LoadOptions) -> tuple[Slo, float | None]:
    """The target, by --slo or else by the thresholds file; and the least rate of right answers by that file."""
    from tritonkit.perf.load import limits_for, read_thresholds
    from tritonkit.perf.load.locust_run import THRESHOLDS
    from tritonkit.perf.load.openloop import parse_slo

    if options.slo:
        return parse_slo(options.slo, language=True), None
    file = (options.thresholds or own_or_shipped(project, THRESHOLDS)).resolve()
    models = [path.parent.name for path in (project / "models").glob("*/model.yaml")]
    thresholds = read_thresholds(file, [*models, options.models[0]])
    limits = limits_for(thresholds, options.models[0], options.tier, language=True)
    return limits.slo, limits.min_rate


def _run(project: Path, addresses: Sequence[str], request: _Asked, options: LoadOptions) -> None:
    """Run the load or the search, print what it showed, write the reports."""
    from tritonkit.perf.load.generation import TextGenerator

    search: RateSearch[GenerationReport] | None = None
    report: GenerationReport | None
    note(f"looking at {options.models[0]} at {', '.join(addresses)} ...")
    timeout_s = _TIMEOUT_S if options.timeout_s is None else options.timeout_s
    metrics = tuple(metrics_of(project, addresses, options.metrics).values())
    traffic, min_rate = request.traffic, request.min_rate
    with TextGenerator(options.models[0], addresses, traffic, timeout_s, min_rate, metrics) as generator:
        if options.find:
            search = find_highest(generator, request.slo, options, DURATION_S)
            report = search.report
        else:
            report = _loaded(generator, request, options)
    if options.report is not None and report is not None:
        write_generation(options.report, report, search, request.slo, addresses)
    if options.as_json:
        shown = search or report
        print_json(({} if shown is None else shown.to_dict()) | {"slo": str(request.slo)})
    else:
        if search:
            print_line(search.summary)
        if report:
            print_generation(report)
    end_generation(report, search, request.slo)


def _loaded(generator: TextGenerator, request: _Asked, options: LoadOptions) -> GenerationReport:
    from tritonkit.perf.load.generation import ClosedLoad

    if request.open is not None:
        moments = request.open.trace is not None
        what = "the trace" if moments else f"{request.open.rate_per_s:g} requests/s"
        note(f"{what} for {request.open.duration_s:g} s ...")
        return generator.run(request.open)
    users, duration_s = options.users or _USERS, options.duration_s or DURATION_S
    warm_s = _WARM_S if options.warm_s is None else options.warm_s
    note(f"{users} streams at the same time for {duration_s:g} s ...")
    return generator.run_closed(ClosedLoad(users, duration_s, warm_s, options.seed or 0, request.slo))
