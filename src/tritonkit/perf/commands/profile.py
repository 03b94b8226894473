"""`tritonkit profile`: where a request's time goes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.options import AnyServer, AsJson, Repository, Root, project_folder
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.cli.started import called

if TYPE_CHECKING:
    from tritonkit.perf.load import RequestProfile
    from tritonkit.perf.load.network import NetworkProfile

__all__ = ["command"]

_BAR = 30  # characters
_SHOWN = 15
_SOURCES = {"client": "this process", "server": "Triton", "difference": "what is left"}


def command(
    name: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="A model in models/.")],
    address: AnyServer = None,
    repository: Repository = None,
    requests: Annotated[int, typer.Option(min=1, help="Number of requests to measure.")] = 200,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Concurrent callers; above 1, queues appear.")] = 1,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Say where a request's time goes: client, wire, each step's queue and run, the network's operators.

    The request is the model's example. The server's times are Triton's own counters, the operators'
    those of the runtime's profiler on the served files in this process.

    Example: tritonkit profile digits --requests 500
    """
    from tritonkit.client import Client
    from tritonkit.perf.load import profile_requests
    from tritonkit.perf.load.network import example_inputs, profile_network
    from tritonkit.repository.modelspec import load_named

    project = project_folder(root)
    folder = (repository or project / "model_repository").resolve()
    spec = load_named(project, name)
    with called(project, folder, (name,), address) as (grpc, _), Client(grpc) as client:
        inputs = example_inputs(spec, project, client)
        note(f"{requests} requests, {concurrency} at a time, to {grpc} ...")
        profile = profile_requests(client, name, inputs, requests, concurrency)
        network = profile_network(spec, client, folder, inputs)
    if as_json:
        print_json(profile.to_dict() | {"network": network.to_dict()})
        return
    _print_spans(profile)
    _print_network(network, profile)
    for text in profile.notes:
        note(f"note: {text}")


def _print_spans(profile: RequestProfile) -> None:
    rows, before = [], ""
    for span in profile.spans:
        shown = span.where if span.where != before else ""
        before = span.where
        share = span.ms / profile.mean_ms
        rows.append([shown, span.what, f"{span.ms:.3f}", f"{share:.1%}"[:-1], _SOURCES[span.source], _bar(share)])
    rows.append(["all", "", f"{profile.mean_ms:.3f}", "100.0", "this process", ""])
    title = (
        f"{profile.model}: mean of {profile.requests} requests, {profile.concurrency} at a time"
        f" (p50 {profile.p50_ms:.2f} ms, p95 {profile.p95_ms:.2f} ms)"
    )
    print_table(title, ["where", "on", "ms", "share %", "measured by", ""], rows)
    if together := {name: size for name, size in profile.batches.items() if size > 1}:
        print_line(f"items per run: {', '.join(f'{n} {size:g}' for n, size in together.items())}")


def _print_network(network: NetworkProfile, profile: RequestProfile) -> None:
    print_line()
    if network.problem:
        note(f"{network.model}: no operators: {network.problem}")
        return
    shown = [(o.name, o.kind, o.ms) for o in network.operators[:_SHOWN]]
    rest = network.operators[_SHOWN:]
    if rest:
        shown.append((f"{len(rest)} others", "", sum(o.ms for o in rest)))
    rows = [[name, kind, f"{ms:.4f}", f"{ms / network.ms:.1%}"[:-1], _bar(ms / network.ms)] for name, kind, ms in shown]
    title = f"{network.model}: {network.variant}, one item in this process, by {network.runtime}'s profiler"
    print_table(title, ["operator", "kind", "ms", "share %", ""], rows)
    computing = (network.model, "compute")
    served = next((s.ms for s in profile.spans if (s.where, s.what) == computing), 0.0)
    print_line(
        f"{network.ms:.3f} ms in operators on {network.threads} threads;"
        f" computing takes {served:.3f} ms on the server, with all that is around them"
    )


def _bar(share: float) -> str:
    """A bar whose full length is the whole."""
    eighths = max(0, round(share * _BAR * 8))
    text = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "#" * round(eighths / 8)
    return text
