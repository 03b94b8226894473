"""`tritonkit serve`: Triton in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tritonkit.cli.from_backup import AsOf, FromBackup, Memory, Source, repository_of
from tritonkit.cli.options import (
    EncryptionKeyFile,
    PublicKey,
    Repository,
    Required,
    Root,
    project_folder,
    project_or_here,
)
from tritonkit.cli.output import note

if TYPE_CHECKING:
    from tritonkit.serve import Endpoint, ServeEvent

__all__ = ["command"]

Port = Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")]


def command(
    models: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Serve only this; may be repeated.")
    ] = None,
    require: Required = None,
    repository: Repository = None,
    grpc_port: Port = 8001,
    http: Annotated[bool, typer.Option("--http", help="Also serve REST, through a guard (docs/rest.md).")] = False,
    http_port: Port = 8000,
    http_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--http-host", metavar="NAME", help="A name under which REST callers know this machine; may be repeated."
        ),
    ] = None,
    http_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--http-origin",
            metavar="ORIGIN",
            help="Web pages that may call, such as https://app.example.org; may be repeated.",
        ),
    ] = None,
    metrics_port: Port = 8002,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default cannot be reached from outside.")
    ] = "127.0.0.1",
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let clients with this run's key pass tensors by shared memory.")
    ] = False,
    max_request_mib: Annotated[
        int | None,
        typer.Option(
            min=1, max=2047, help="Largest request; by default what the models' configurations allow, at least 64."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Refuse files that are not as they were published; a second for each GB.")
    ] = False,
    public_key: PublicKey = None,
    from_backup: FromBackup = None,
    as_of: AsOf = None,
    encryption_key: EncryptionKeyFile = None,
    memory: Memory = None,
    backend: Annotated[
        Literal["auto", "native", "python"],
        typer.Option(help="Backends of ONNX Runtime and OpenVINO; auto is native where it can be."),
    ] = "auto",
    root: Root = None,
) -> None:
    """Serve a repository in the foreground until Ctrl-C, which answers the requests in flight first.

    A model that cannot be served keeps no other from it, unless it is in --require.
    A server that dies is started again. What changes it needs a key, which other commands of this user
    find by themselves (docs/security.md).

    Example: tritonkit serve --model digits --grpc-port 0
    """
    from tritonkit.serve import Server

    elsewhere = repository is not None or from_backup is not None
    project = project_or_here(root) if elsewhere else project_folder(root)
    source = Source(repository, from_backup, as_of, encryption_key, memory, public_key)
    with repository_of(source, project) as folder:
        if public_key is not None and from_backup is None:
            from tritonkit.operate.store.keys import read_public_key
            from tritonkit.operate.store.whole import require_whole

            require_whole(folder, models or (), public_key=read_public_key(public_key))
        server = Server(
            folder,
            models=models or None,
            require=require or (),
            grpc_port=grpc_port,
            http_port=http_port,
            metrics_port=metrics_port,
            host=host,
            root=project,
            http=http,
            http_hosts=http_hosts or (),
            http_origins=http_origins or (),
            shared_memory_api=shared_memory,
            max_request_mib=max_request_mib,
            verify=verify,
            backend=backend,
            on_event=_print_event,
        )
        _print(server.start())
        server.run_until_signal()


def _print_event(event: ServeEvent) -> None:
    note(f"{' '.join([*event.kind.split('_'), event.model]).rstrip()}: {event.message}")


def _print(endpoint: Endpoint) -> None:
    """The addresses, for people and for whoever waits for these lines."""
    print(f"gRPC     {endpoint.grpc}")
    if endpoint.http:
        print(f"HTTP     http://{endpoint.http}")
    print(f"metrics  http://{endpoint.metrics}/metrics", flush=True)
