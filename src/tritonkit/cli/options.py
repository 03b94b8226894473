"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Address", "AsJson", "Root", "Timeout"]

Root = Annotated[
    Path | None,
    typer.Option(help="The project's folder; found upwards from here.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Address = Annotated[str, typer.Option(help="gRPC address of the server, host:port.")]
Timeout = Annotated[float, typer.Option("--timeout-s", help="Seconds to wait for an answer.")]
