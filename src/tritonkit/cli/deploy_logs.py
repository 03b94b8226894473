"""`tritonkit deploy logs`: the lines of all pods, each with its pod's name."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.deploy_status import Context, Namespace
from tritonkit.cli.options import seconds
from tritonkit.cli.output import note, print_line
from tritonkit.errors import ClientError

if TYPE_CHECKING:
    from tritonkit.operate.deploy.cluster import Cluster

__all__ = ["command"]


def command(
    namespace: Namespace = "tritonkit",
    context: Context = None,
    previous: Annotated[bool, typer.Option("--previous", help="Of the run before the last restart.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only lines so young, as 5m.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Only lines that name this model.")] = None,
) -> None:
    """Print the logs of all pods, init containers included, each line with its pod and container.

    Example: tritonkit deploy logs --since 10m --model digits
    """
    from tritonkit.operate.deploy.cluster import connect, pods_of

    options: dict[str, Any] = {"previous": previous}
    if since is not None:
        options["since_seconds"] = max(1, int(seconds("--since", since, 1.0)))
    wanted = re.compile(rf"(?<![\w-]){re.escape(model)}(?![\w-])") if model else None
    cluster = connect(context, namespace)
    threads = []
    for pod in pods_of(cluster):
        spec = pod["spec"]
        for each in spec.get("initContainers", []) + spec["containers"]:
            words = (cluster, pod["metadata"]["name"], each["name"], follow, options, wanted)
            if follow:
                threads.append(threading.Thread(target=_print, args=words, daemon=True))
                threads[-1].start()
            else:
                _print(*words)
    for thread in threads:
        thread.join()


def _print(
    cluster: Cluster, pod: str, container: str, follow: bool, options: dict[str, Any], wanted: re.Pattern[str] | None
) -> None:
    """One container's lines; one that never ran is a note."""
    try:
        for line in cluster.log(pod, container, follow, **options):
            if wanted is None or wanted.search(line):
                print_line(f"{pod}/{container}: {line}")
    except ClientError as error:
        note(f"note: {pod}/{container}: {error.found}")
