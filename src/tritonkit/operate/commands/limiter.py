"""`tritonkit limiter`: the service that several gateways ask for the rates that they share."""

from __future__ import annotations

from typing import Annotated

import typer

from tritonkit.cli.options import GatewayFolder, Root, gateway_folder
from tritonkit.cli.output import note, print_line

__all__ = ["command"]


def command(
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="HOST:PORT, where port 0 picks a free one, or unix:PATH. Callers are not authenticated.",
        ),
    ] = "127.0.0.1:8081",
    gateway: GatewayFolder = None,
    root: Root = None,
) -> None:
    """Count requests by key for gateways that share rates, in the Redis that gateway.yaml names, until Ctrl-C.

    `tritonkit up` starts a limiter itself; this command is for gateways that run elsewhere, such as in containers.

    Example: tritonkit limiter --listen 127.0.0.1:8081
    """
    from tritonkit.operate.gateway import read_gateway
    from tritonkit.operate.limiter import run_limiter

    folder = gateway_folder(root, gateway).resolve()

    def print_ready(address: str) -> None:
        print_line(f"limiter  {address}")

    run_limiter(read_gateway(folder), folder, listen, log=note, ready=print_ready)
