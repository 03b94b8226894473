"""`tritonkit up`, `down`: replicas behind a gateway on this machine, without containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.from_backup import AsOf, FromBackup, Memory, Source, repository_of
from tritonkit.cli.options import (
    AsJson,
    EncryptionKeyFile,
    GatewayFolder,
    PublicKey,
    Repository,
    Required,
    Root,
    gateway_folder,
    host_and_port,
    project_folder,
    project_or_here,
)
from tritonkit.cli.output import note, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from tritonkit.operate.stack import Stack, StackEvent, StackPart

__all__ = ["down", "up"]

_WATCH_S = 0.5
_START_S, _STOP_S = 300.0, 120.0


def up(
    replicas: Annotated[int, typer.Option(help="Servers of the repository.")] = 2,
    models: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Serve only this; may be repeated.")
    ] = None,
    require: Required = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all is ready; `tritonkit down` ends it.")
    ] = False,
    prometheus: Annotated[bool, typer.Option(help="Prometheus beside it, where it is installed.")] = True,
    alertmanager: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="An Alertmanager that Prometheus tells of alerts.")
    ] = "",
    redis: Annotated[bool, typer.Option(help="Redis beside it, where it is installed.")] = True,
    verify: Annotated[
        bool, typer.Option(help="Refuse files that are not as they were published; some 2 s for each GiB.")
    ] = True,
    public_key: PublicKey = None,
    from_backup: FromBackup = None,
    as_of: AsOf = None,
    encryption_key: EncryptionKeyFile = None,
    memory: Memory = None,
    gateway: GatewayFolder = None,
    repository: Repository = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Serve a repository by some replicas behind one gateway with TLS and keys, until Ctrl-C or `tritonkit down`.

    Example: tritonkit certs && tritonkit keys add me > me.key && tritonkit up --replicas 2
    """
    from tritonkit.operate.stack import Stack, StackSettings

    elsewhere = repository is not None or from_backup is not None
    project = project_or_here(root) if elsewhere else project_folder(root)
    if alertmanager:
        host_and_port("--alertmanager", alertmanager)
    if detach:
        _start_detached(project, as_json=as_json)
        return
    for one in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, also before all of it has started
        signal.signal(one, signal.default_int_handler)
    own = gateway_folder(root, gateway) if gateway or not elsewhere else project / "deploy" / "gateway"
    source = Source(repository, from_backup, as_of, encryption_key, memory, public_key)
    restored = from_backup is not None  # then all of it was checked
    with repository_of(source, project) as folder:
        settings = StackSettings(
            project,
            folder,
            models=models or None,
            require=tuple(require or ()),
            replicas=replicas,
            gateway=own,
            prometheus=prometheus,
            redis=redis,
            alertmanager=alertmanager,
            verify=verify and not restored,
            public_key=None if restored else public_key,
            models_folder=folder.parent / "served" if restored else None,
            on_event=_print_event,
        )
        with Stack(settings) as stack:
            _print_ready(stack.address, stack.parts, as_json=as_json)
            _watch(stack)


def down(root: Root = None) -> None:
    """End the stack of this project: requests that are under way are answered first.

    Example: tritonkit down
    """
    from tritonkit.operate.stack import stop_running

    stop_running(project_or_here(root), _STOP_S)
    note("nothing is left")


def _print_event(event: StackEvent) -> None:
    note(f"{event.part}: {event.message}")


def _print_ready(address: str, parts: Sequence[StackPart], *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"gateway": address, "parts": [asdict(part) for part in parts]})
        sys.stdout.flush()
        return
    print_line(f"gateway  grpcs://{address}  https://{address}")
    sys.stdout.flush()


def _watch(stack: Stack) -> None:
    """Keep it running; on a terminal with a table of its parts."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        stack.run_until_signal()
        return
    with Live(_table(stack.parts), console=console, transient=True, auto_refresh=False) as live:
        threading.Thread(target=_draw, args=(stack, live), daemon=True).start()
        stack.run_until_signal()


def _draw(stack: Stack, live: Any) -> None:
    while not stack.ending.wait(_WATCH_S):
        live.update(_table(stack.parts), refresh=True)


def _table(parts: Sequence[StackPart]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from tritonkit.text import printable

    table = Table("part", "state", "address", "pid", "cores", "last", expand=True)
    colors = {"ready": "green", "down": "red", "starting": "yellow"}
    for part in parts:
        cores = ",".join(map(str, part.cores))
        state = f"[{colors.get(part.state, 'dim')}]{part.state}[/]"
        table.add_row(
            part.name, state, part.address, str(part.pid or ""), cores, Text(printable(part.said, lines=False))
        )
    return table


def _start_detached(project: Path, *, as_json: bool) -> None:
    """The same command in the background, once it is ready or has failed."""
    from tritonkit.errors import ServerStartError
    from tritonkit.operate.stack import read_state
    from tritonkit.operate.stack.state import FOLDER

    if (running := read_state(project)) is not None:
        raise ServerStartError(
            f"the stack of {project}",
            found=f"it runs already, watched by process {running['owner']}",
            todo="tritonkit down",
        )
    log = project / FOLDER / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [word for word in sys.argv[1:] if word not in ("--detach", "--json")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tritonkit", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1"},
        )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            if not (said := log.read_text(errors="replace")):
                raise ServerStartError(
                    "the stack",
                    found=f"it ended with exit code {code}, and nothing is in its log {log}",
                    todo=f"look whether the disk is full: df -h {log.parent}",
                )
            sys.stderr.write(said)
            raise typer.Exit(code or 1)
        state = read_state(project)
        if state is not None and state["owner"] == process.pid:
            from tritonkit.operate.stack import StackPart

            parts = [StackPart(**{**each, "cores": tuple(each["cores"])}) for each in state["parts"]]
            _print_ready(state["gateway"], parts, as_json=as_json)
            return
        time.sleep(_WATCH_S / 5)
    process.terminate()
    raise ServerStartError("the stack", found=f"it was not ready after {_START_S:g} s", todo=f"its log is {log}")
