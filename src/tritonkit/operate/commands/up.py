"""`tritonkit up`, `down`: replicas behind a gateway on this machine, without containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.fields import command_line, expanded
from tritonkit.cli.from_backup import Source, repository_of
from tritonkit.cli.options import AsJson, GatewayFolder, Root, gateway_folder, host_and_port, project_or_here
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.operate.stack.values import StackSettings

if TYPE_CHECKING:
    from rich.table import Table

    from tritonkit.operate.stack import Stack, StackEvent, StackPart

__all__ = ["down", "up"]

_WATCH_S = 0.5
_START_S, _STOP_S = 300.0, 120.0


@expanded("up")
def up(
    settings: partial[StackSettings],
    source: Source,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything is ready; `tritonkit down` ends it.")
    ] = False,
    gateway: GatewayFolder = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Serve a repository from several replicas behind a gateway with TLS and keys, until Ctrl-C or `tritonkit down`.

    Example: tritonkit certs && tritonkit keys add me > me.key && tritonkit up --replicas 2
    """
    from tritonkit.operate.stack import Stack

    project = source.project(root)
    if alertmanager := settings.keywords["alertmanager"]:
        host_and_port("--alertmanager", alertmanager)
    if detach:
        _start_detached(project, command_line(detach=False, as_json=False), as_json=as_json)
        return
    for one in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, also before all of it has started
        signal.signal(one, signal.default_int_handler)
    folder = gateway_folder(root, gateway) if gateway or not source.is_elsewhere else project / "deploy" / "gateway"
    with repository_of(source, project) as repository:
        stack_settings = settings(project, repository, gateway=folder, on_event=_print_event)
        if source.from_backup is None:
            stack_settings = replace(stack_settings, public_key=source.public_key)
        else:  # all of it was checked when it was restored
            stack_settings = replace(stack_settings, verify=False, models_folder=repository.parent / "served")
        with Stack(stack_settings) as stack:
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


def _start_detached(project: Path, words: Sequence[str], *, as_json: bool) -> None:
    """Run the same command in the background; return once it is ready or has failed."""
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
            if not (text := log.read_text(errors="replace")):
                raise ServerStartError(
                    "the stack",
                    found=f"it ended with exit code {code}, and nothing is in its log {log}",
                    todo=f"look whether the disk is full: df -h {log.parent}",
                )
            sys.stderr.write(text)
            raise typer.Exit(code or 1)
        state = read_state(project)
        if state is not None and state["owner"] == process.pid:
            from tritonkit.operate.stack import StackPart

            parts = [StackPart(**{**part, "cores": tuple(part["cores"])}) for part in state["parts"]]
            _print_ready(state["gateway"], parts, as_json=as_json)
            return
        time.sleep(_WATCH_S / 5)
    process.terminate()
    raise ServerStartError("the stack", found=f"it was not ready after {_START_S:g} s", todo=f"its log is {log}")
