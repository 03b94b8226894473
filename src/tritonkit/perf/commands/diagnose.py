"""`tritonkit diagnose`: what keeps a server from being faster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Repository, Root, project_or_here
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.cli.started import called
from tritonkit.errors import ClientError, ModelNotFound, TritonkitError, UsageError
from tritonkit.option import Option
from tritonkit.perf.commands.metrics_of import metrics_of

if TYPE_CHECKING:
    from tritonkit.perf.diagnose import Diagnosis, Evidence, ServerEvidence, Watcher

__all__ = ["command", "figures", "gpu_figures", "language_figures"]

_GIB = 1 << 30

_WINDOW_S = 5.0
_LEAST_S = 1.5
_WARM_S = 1.0
_MODERATE, _MOST_PER_S = 0.5, 200.0
"""Share of a single caller's rate, and its upper bound: a load under which nothing needs to queue."""
_TRIES = 5


@dataclass(frozen=True)
class LookOptions:
    """The servers to look at, the load during it, and how long."""

    address: Annotated[
        str | None,
        Option(
            "gRPC addresses of servers that serve the same; one is started and loaded by default.",
            completes="address",
            metavar="HOST:PORT,...",
        ),
    ] = None
    metrics: Annotated[
        str | None,
        Option(
            "Addresses of their Prometheus metrics, in the same order; found automatically for `tritonkit serve`.",
            metavar="HOST:PORT,...",
        ),
    ] = None
    pid: Annotated[
        str | None,
        Option(
            "Process IDs of tritonserver on this machine, if another process owns the port, as with a container.",
            metavar="PID,...",
        ),
    ] = None
    load: Annotated[
        float | None,
        Option("Requests a second to send meanwhile; with --address only a few by default.", metavar="N", min=0.1),
    ] = None
    duration_s: Annotated[
        float | None,
        Option(
            "Time to observe; 5s by default, unlimited with --watch.",
            name="--duration",
            metavar="TIME",
            unit="time",
            min=_LEAST_S,
        ),
    ] = None
    target_s: Annotated[
        float,
        Option("Acceptable time of a request in the server.", name="--target", metavar="TIME", unit="time", min=1e-6),
    ] = 0.05
    watch: Annotated[bool, Option("Refresh every second until Ctrl-C.")] = False


@expanded("diagnose")
def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            autocompletion=complete_model,
            help="A served model; by default all models at --address.",
        ),
    ] = None,
    *,
    options: LookOptions,
    repository: Repository = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Name the bottleneck of a server, with the evidence, the change that removes it, and the expected gain.

    It observes Triton's statistics, configuration and metrics, requests of its own, and a local server's machine, under
    the present traffic. Without --address it starts a server and loads it moderately.

    Example: tritonkit diagnose digits --load 300
    """
    address, load = options.address, options.load
    project = project_or_here(root)
    if address is None and name is None:
        raise UsageError(
            "tritonkit diagnose",
            found="neither a MODEL nor --address",
            wanted="a model to start a server for, or the address of a server that runs",
            todo="tritonkit diagnose digits, or tritonkit diagnose --address 127.0.0.1:8001",
        )
    if load is not None and name is None:
        raise UsageError("--load", found="no MODEL", wanted="the model to send requests to")
    if name is not None and (address is None or load is not None):
        _refuse_language_model(project, name)
    with _servers(project, repository, name, address, options.metrics) as (addresses, metrics_of):
        pids = None if options.pid is None else _pids(options.pid, len(addresses))
        processes = dict(zip(addresses, pids, strict=True)) if pids else {}
        inputs = None if name is None else _inputs(project, name, addresses)
        if address is None and name is not None and load is None:
            load = _moderate(name, addresses[0], inputs)
        with _loaded(project, name, addresses, load):
            from tritonkit.perf.diagnose import Watcher

            window_s = _WINDOW_S if options.watch or options.duration_s is None else options.duration_s
            with Watcher(
                addresses, name or "", inputs=inputs, metrics=metrics_of, window_s=window_s, processes=processes
            ) as watcher:
                _look(watcher, addresses, window_s, options, as_json)


def _refuse_language_model(project: Path, name: str) -> None:
    """Refuse to load a language model: its load depends on lengths of prompts and answers, which this command lacks."""
    from tritonkit.repository.modelspec import load_named

    try:
        spec = load_named(project, name)
    except TritonkitError:
        return  # a server at an address may know it; else it is said before one is started
    if spec.model.network.llm:
        raise UsageError(
            f"tritonkit diagnose {name}",
            found="a language model, which this command cannot load",
            wanted="the address of a server with traffic, without --load",
            todo=f"tritonkit serve, callers of yours, and tritonkit diagnose {name} --address 127.0.0.1:8001",
        )


def _look(
    watcher: Watcher,
    addresses: Sequence[str],
    window_s: float,
    options: LookOptions,
    as_json: bool,
) -> None:
    from tritonkit.perf.diagnose import diagnose, evidence_of

    target_ms = 1e3 * options.target_s
    if options.watch:
        from tritonkit.perf.commands.diagnose_watch import show

        show(watcher, options.duration_s, target_ms, as_json)
        return
    note(f"looking at {', '.join(addresses)} for {window_s:g} s ...")
    watcher.wait(window_s)
    evidence = evidence_of(watcher.observation())
    diagnosis = diagnose(evidence, target_ms)
    if as_json:
        print_json(diagnosis.to_dict() | {"servers": [asdict(server) for server in evidence.servers]})
    else:
        _print(diagnosis, evidence)


def _print(diagnosis: Diagnosis, evidence: Evidence) -> None:
    tables = (("what was seen", figures), ("GPUs", gpu_figures), ("language models", language_figures))
    for title, made in tables:
        columns, rows = made(evidence)
        if rows:
            print_table(title, columns, rows)
            print_line()
    print_line(f"verdict: {diagnosis.verdict}")
    for number, finding in enumerate(diagnosis.findings, 1):
        print_line()
        print_line(f"{number}. {finding.cause}: {finding.where}")
        for text in finding.evidence:
            print_line(f"   - {text}")
        print_line(f"   change: {finding.change}")
        print_line(f"   gain: {finding.gain}")
    for text in diagnosis.notes:
        note(f"note: {text}")


def figures(evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row for each model that ran on each server; language models have a table of their own."""
    columns = ["server", "model", "rate/s", "requests a run", "queue ms", "run ms", "in flight", "waiting", "% busy"]
    with_gpus = any(server.gpus for server in evidence.servers)
    rows = [
        [
            server.address,
            model.name,
            f"{model.rate_per_s:.1f}",
            _figure(model.requests_per_run, 2),
            _figure(model.queue_ms, 1),
            _figure(model.compute_ms, 1),
            f"{model.in_flight:.2f}",
            "-" if model.pending is None else f"{model.pending[1]:.0f}",
            f"{100 * min(1.0, model.utilization):.0f}",
            *([_figure(model.copies, 0, 100)] if with_gpus else []),
        ]
        for server in evidence.servers
        for model in server.parts
        if model.rate_per_s and model.facts.language is None
    ]
    return [*columns, *(["% copies"] if with_gpus else [])], rows


def gpu_figures(evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """The same of the servers' GPUs."""
    columns = ["server", "GPU", "% used", "GiB", "of", "W", "of", "J a request", "% throttled"]
    rows = [
        [
            server.address,
            gpu.use.gpu,
            _figure(gpu.use.busy, 0, 100),
            _figure(gpu.use.memory_bytes, 1, 1 / _GIB),
            _figure(gpu.use.memory_total_bytes, 1, 1 / _GIB),
            _figure(gpu.use.power_w, 0),
            _figure(gpu.use.power_limit_w or None, 0),
            _figure(_energy_j(server, gpu.use.energy_j), 3),
            _figure(gpu.throttled, 0, 100),
        ]
        for server in evidence.servers
        for gpu in server.gpus
    ]
    return columns, rows


def _energy_j(server: ServerEvidence, energy_j: float | None) -> float | None:
    """Energy for a request of the server's callers."""
    requests = server.rate_per_s * server.seconds
    return energy_j / requests if energy_j is not None and requests else None


def language_figures(evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """The same of language models."""
    columns = [
        "server",
        "model",
        "running",
        "waiting",
        "left out",
        "tokens/s",
        "prompt tokens/s",
        "first token ms",
        "between ms",
        "p95 ms",
        "% cache",
        "pauses",
        "% busy",
    ]
    rows = [
        [
            server.address,
            part.name,
            f"{language.running:.1f}",
            f"{language.waiting:.1f}",
            f"{language.stalled:.1f}",
            f"{language.tokens_per_s:.0f}",
            f"{language.prompt_tokens_per_s:.0f}",
            _figure(language.first_ms, 0),
            _figure(language.between_ms, 1),
            _figure(language.between_p95_ms, 1),
            f"{100 * language.cache:.0f}",
            str(language.paused),
            f"{100 * language.busy:.0f}",
        ]
        for server in evidence.servers
        for part in server.parts
        if (language := part.language) is not None and language.busy
    ]
    return columns, rows


def _figure(value: float | None, digits: int, times: float = 1.0) -> str:
    return "-" if value is None else f"{times * value:.{digits}f}"


@contextlib.contextmanager
def _servers(
    project: Path, repository: Path | None, name: str | None, address: str | None, metrics: str | None
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """gRPC addresses, and the addresses of their metrics that are known."""
    folder = (repository or project / "model_repository").resolve()
    if address is None:
        from tritonkit.repository.modelspec import load_named

        load_named(project, name or "")  # a name that is not there is said before a server is started
    with called(project, folder, (name or "",), address) as (grpc, _):
        addresses = [part.strip() for part in grpc.split(",")]
        yield addresses, metrics_of(project, addresses, metrics)


def _pids(text: str, count: int) -> list[int]:
    pids = [part.strip() for part in text.split(",")]
    if len(pids) != count or not all(pid.isdecimal() for pid in pids):
        raise UsageError("--pid", found=repr(text), wanted=f"a number for each of {count} servers")
    gone = [pid for pid in pids if not Path("/proc", pid).is_dir()]
    if gone:
        raise UsageError("--pid", found=f"there is no process {gone[0]} here")
    return [int(pid) for pid in pids]


def _inputs(project: Path, name: str, addresses: Sequence[str]) -> Mapping[str, Any] | None:
    """One item for requests of our own: the project's example, else zeros; None where neither can be had."""
    from tritonkit.client import Client
    from tritonkit.perf.diagnose import plain_inputs
    from tritonkit.perf.load.network import example_inputs
    from tritonkit.repository.modelspec import load_named

    failed: ClientError | None = None
    for address in addresses:
        with Client(address, timeout_s=5, retry=None, breaker=None) as client:
            try:
                client.model(name)  # an unknown model, or no server
                with contextlib.suppress(TritonkitError):
                    return example_inputs(load_named(project, name), project, client)
                inputs = plain_inputs(client, name)
            except ModelNotFound:
                raise
            except ClientError as error:
                failed = failed or error
                continue
            if inputs is None:
                note(f"note: no example of {name} is known here: no requests of our own are sent")
            return inputs
    if failed is not None:
        raise failed
    return None


def _moderate(name: str, address: str, inputs: Mapping[str, Any] | None) -> float:
    """Half of what one caller alone reaches."""
    from tritonkit.client import Client

    with Client(address) as client:
        times = [client.model(name).predict(inputs=inputs).timing.total_s for _ in range(_TRIES)]
    return max(0.5, min(_MOST_PER_S, _MODERATE / sorted(times)[_TRIES // 2]))


@contextlib.contextmanager
def _loaded(project: Path, name: str | None, addresses: Sequence[str], rate_per_s: float | None) -> Iterator[None]:
    """Requests at a rate for as long as the block; none without a rate."""
    if name is None or rate_per_s is None:
        yield
        return
    from tritonkit.perf.load.openloop import Generator, OpenLoad

    ended = threading.Event()
    with Generator(project, (name,), addresses) as generator:

        def send() -> None:
            with contextlib.suppress(TritonkitError):  # a server that fails is what is looked for
                while not ended.is_set():
                    generator.run(OpenLoad(rate_per_s, _WINDOW_S, warm_s=0.0))

        thread = threading.Thread(target=send, name="tritonkit-load", daemon=True)
        note(f"{rate_per_s:.1f} requests/s to {name} ...")
        thread.start()
        try:
            ended.wait(_WARM_S)
            yield
        finally:
            ended.set()
            thread.join()
