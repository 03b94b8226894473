"""`tritonkit gateway`: whether one could start with the files as they are, and the files of one that runs elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, GatewayFolder, Repository, Root, gateway_folder, host_and_port, project_folder
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.errors import ServerNotFound
from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.operate.gateway import Upstream

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The gateway's files.")


@app.callback()
def _group() -> None:
    """The gateway's files."""


@app.command("check")
def check(gateway: GatewayFolder = None, as_json: AsJson = False, root: Root = None) -> None:
    """Check gateway.yaml, keys and certificates, and have Envoy check the result; nothing is written.

    Example: tritonkit gateway check
    """
    from tritonkit.operate import certificates, keys
    from tritonkit.operate.gateway import Places, read_gateway
    from tritonkit.operate.gateway.overload import memory_notes
    from tritonkit.operate.gateway.render import validate
    from tritonkit.operate.stack.companions import check_limiter

    folder = gateway_folder(root, gateway).resolve()
    spec = read_gateway(folder)
    api_keys = keys.read_keys(folder / keys.FILE)
    certificate = certificates.check_pair(folder / spec.tls.certificate, folder / spec.tls.key)
    check_limiter(spec.limits.shared, folder)
    envoy = _envoy(project_folder(root) if gateway is None else None)
    unused = folder / "unused"
    validate(spec, Places(folder, unused, unused, None, spec.port), api_keys, (), (), envoy)
    for advice in memory_notes(spec.limits):
        note(f"note: {advice}")
    if as_json:
        print_json(
            {
                "gateway": str(folder),
                "address": f"{spec.host}:{spec.port}",
                "keys": [key.name for key in api_keys],
                "tokens": spec.jwt is not None,
                "requests_per_replica": spec.limits.requests_per_replica,
                "names": certificate.names,
                "days_left": round(certificate.days_left(), 2),
            }
        )
        return
    callers = f"{len(api_keys)} key{'' if len(api_keys) == 1 else 's'}{' and tokens' if spec.jwt else ''}"
    note(
        f"{folder}: Envoy accepts it; {spec.host}:{spec.port}, {callers}, a certificate for"
        f" {', '.join(certificate.names)} until {certificate.ends:%Y-%m-%d},"
        f" {spec.limits.requests_per_replica} requests for each replica at a time"
    )


@dataclass(frozen=True)
class RenderOptions:
    """The files of a gateway, and the servers behind it."""

    out: Annotated[Path, Option("The folder to write, which Envoy reads.")]
    replicas: Annotated[
        Sequence[str],
        Option(
            "HOST:PORT of a server's gRPC, and of its REST after a comma; may be repeated. Every address of a"
            " host name is a server.",
            name="--replica",
            metavar="GRPC[,REST]",
        ),
    ]
    each: Annotated[int, Option("Servers behind each --replica, for the limits.", min=1)] = 1
    listen: Annotated[str | None, Option("Address to listen on, instead of gateway.yaml's.", metavar="HOST:PORT")] = (
        None
    )
    metrics: Annotated[
        str, Option("Address of Envoy's metrics for Prometheus; none by default.", metavar="HOST:PORT")
    ] = ""
    models: Annotated[
        Sequence[str] | None,
        Option(
            "A model that is served; may be repeated. By default those of the repository.",
            name="--model",
            metavar="MODEL",
        ),
    ] = None
    candidate: Annotated[
        str | None,
        Option("A server with the next version of all models, in the form of --replica.", metavar="GRPC[,REST]"),
    ] = None
    percent: Annotated[float, Option("Percentage of the requests that go to the candidate.", min=0, max=100)] = 0.0
    watch: Annotated[bool, Option("Keep running, and write the files again when keys or models change.")] = False
    envoy: Annotated[
        Path | None, Option("The Envoy that checks the files; by default the server environment's, or the one on PATH.")
    ] = None


@app.command("render")
@expanded("gateway render")
def render(
    options: RenderOptions,
    gateway: GatewayFolder = None,
    repository: Repository = None,
    root: Root = None,
) -> None:
    """Write the files of a gateway whose Envoy runs elsewhere, such as in a container. Envoy checks them first.

    Start it with `envoy --config-path OUT/envoy.json` where OUT and the gateway's folder have the same paths.

    Example: tritonkit gateway render --out /srv/gateway --replica a:8001,a:8000 --replica b:8001,b:8000
    """
    from tritonkit.operate.gateway import GatewayFiles, GatewaySources

    for option, text in (("--listen", options.listen), ("--metrics", options.metrics)):
        if text:
            host_and_port(option, text)
    has_models = repository is not None or options.models
    project = None if gateway is not None and has_models else project_folder(root)
    sources = GatewaySources(
        gateway_folder(root, gateway).resolve(),
        (repository or (project or Path()) / "model_repository").resolve(),
        [_replica(text, options.each) for text in options.replicas],
        host_and_port("--listen", options.listen) if options.listen else None,
        options.metrics,
        options.models or (),
        _replica(options.candidate, 1, "--candidate") if options.candidate else None,
        options.percent,
    )
    files = GatewayFiles(sources, options.out.resolve(), options.envoy or _envoy(project))
    print_line(str(files.write()))
    if options.watch:
        files.follow(_until_signal(), note)


def _replica(text: str, count: int, option: str = "--replica") -> Upstream:
    from tritonkit.operate.gateway import Upstream

    grpc, _, rest = text.partition(",")
    for address in filter(None, (grpc, rest)):
        host_and_port(option, address)
    return Upstream(grpc, grpc, rest, count)


def _until_signal() -> threading.Event:
    """An event that SIGINT or SIGTERM sets."""
    ending = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: ending.set())
    return ending


def _envoy(root: Path | None) -> Path:
    """The Envoy of the server environment, else the one on PATH, as in an image.

    Raises:
        ServerNotFound: neither has an Envoy.
    """
    from tritonkit.operate.stack.companions import no_envoy
    from tritonkit.serve.core.rest import find_envoy
    from tritonkit.serve.install import find_server

    envoy = None
    with contextlib.suppress(ServerNotFound):
        envoy = find_server(root).envoy
    envoy = envoy or find_envoy(None)
    if envoy is None:
        raise no_envoy()
    return envoy
