"""`tritonkit serve`: Triton in the foreground."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tritonkit.cli.fields import expanded
from tritonkit.cli.from_backup import Source, repository_of
from tritonkit.cli.options import Root
from tritonkit.cli.output import note
from tritonkit.serve.values import Settings

if TYPE_CHECKING:
    from tritonkit.serve import Endpoint, ServeEvent

__all__ = ["command"]


@expanded("serve")
def command(settings: partial[Settings], source: Source, root: Root = None) -> None:
    """Serve a repository in the foreground until Ctrl-C, which answers the requests in flight first.

    A model that cannot be served does not stop the others, unless it is in --require. A server that dies
    is restarted. Calls that change the server need a key, which other commands of this user find by
    themselves (docs/security.md).

    Example: tritonkit serve --model digits --grpc-port 0
    """
    from tritonkit.serve import Server

    project = source.project(root)
    with repository_of(source, project) as folder:
        if source.public_key is not None and source.from_backup is None:
            from tritonkit.operate.store.keys import read_public_key
            from tritonkit.operate.store.whole import require_whole

            models = settings.keywords["models"] or ()
            require_whole(folder, models, public_key=read_public_key(source.public_key))
        server = Server(settings(folder, root=project, on_event=_print_event))
        _print(server.start())
        server.run_until_signal()


def _print_event(event: ServeEvent) -> None:
    note(f"{' '.join([*event.kind.split('_'), event.model]).rstrip()}: {event.message}")


def _print(endpoint: Endpoint) -> None:
    """Print the addresses, for people and for programs that wait for these lines."""
    print(f"gRPC     {endpoint.grpc}")
    if endpoint.http:
        print(f"HTTP     http://{endpoint.http}")
    print(f"metrics  http://{endpoint.metrics}/metrics", flush=True)
