"""`tritonkit serve`: Triton in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import Repository, Root, project_folder, project_or_here
from tritonkit.cli.output import note

if TYPE_CHECKING:
    from tritonkit.serve import Endpoint, ServeEvent

__all__ = ["command"]

Port = Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")]


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", metavar="NAME", help="Serve only this; may be repeated.", show_default=False
    ),
]
Http = Annotated[
    bool, typer.Option("--http", help="Also serve REST, through a guard (docs/rest.md).")
]
HttpHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--http-host",
        metavar="NAME",
        show_default=False,
        help="A name under which REST callers know this machine; may be repeated.",
    ),
]
HttpOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--http-origin",
        metavar="ORIGIN",
        show_default=False,
        help="Web pages that may call, such as https://app.example.org; may be repeated.",
    ),
]
Host = Annotated[
    str, typer.Option(help="Address to listen on; the default cannot be reached from outside.")
]
SharedMemory = Annotated[
    bool,
    typer.Option(
        "--shared-memory", help="Let clients with this run's key pass tensors by shared memory."
    ),
]
MaxRequest = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2047,
        show_default=False,
        help="Largest request; by default what the models' configurations allow, at least 64.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify", help="Refuse files that are not as they were published; a second for each GB."
    ),
]


def command(
    models: Models = None,
    repository: Repository = None,
    grpc_port: Port = 8001,
    http: Http = False,
    http_port: Port = 8000,
    http_hosts: HttpHosts = None,
    http_origins: HttpOrigins = None,
    metrics_port: Port = 8002,
    host: Host = "127.0.0.1",
    shared_memory: SharedMemory = False,
    max_request_mib: MaxRequest = None,
    verify: Verify = False,
    root: Root = None,
) -> None:
    """Serve a repository in the foreground until Ctrl-C, which answers the requests in flight first.

    A server that dies is started again. What changes it needs a key, which other commands of this user
    find by themselves (docs/security.md).

    Example: tritonkit serve --model digits --grpc-port 0
    """
    from tritonkit.publish import recover
    from tritonkit.serve import Server

    project = project_folder(root) if repository is None else project_or_here(root)
    folder = (repository or project / "model_repository").resolve()
    if recover(folder):
        note(f"{folder}: finished a publish that had been interrupted")
    server = Server(
        folder, models=models or None, grpc_port=grpc_port, http_port=http_port,
        metrics_port=metrics_port, host=host, root=project, http=http,
        http_hosts=http_hosts or (), http_origins=http_origins or (),
        shared_memory_api=shared_memory, max_request_mib=max_request_mib, verify=verify,
        on_event=_print_event,
    )  # fmt: skip
    _print(server.start())
    server.run_until_signal()


def _print_event(event: ServeEvent) -> None:
    note(
        f"{event.kind.replace('_', ' ')}{f' {event.model}' if event.model else ''}: {event.message}"
    )


def _print(endpoint: Endpoint) -> None:
    """The addresses, for people and for whoever waits for these lines."""
    print(f"gRPC     {endpoint.grpc}")
    if endpoint.http:
        print(f"HTTP     http://{endpoint.http}")
    print(f"metrics  http://{endpoint.metrics}/metrics", flush=True)
