"""`tritonkit certs`: certificates for a start."""

from __future__ import annotations

from typing import Annotated

import typer

from tritonkit.cli.options import GatewayFolder, Root, gateway_folder
from tritonkit.cli.output import note, print_line

__all__ = ["command"]


def command(
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="A DNS name or address that callers use to reach the gateway; may be repeated. By default those of"
            " the existing certificate, else localhost and 127.0.0.1.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=825, help="Days for which the gateway's certificate is valid.")] = 397,
    gateway: GatewayFolder = None,
    root: Root = None,
) -> None:
    """Make a certificate authority and a certificate for the gateway, signed by it. Callers get tls/ca.crt.

    Run again to issue another certificate from the same authority; a running gateway uses it immediately.

    Example: tritonkit certs --name localhost --name 127.0.0.1 --name gateway.example.org
    """
    from tritonkit.operate.certificates import make_certificates, read_certificate

    folder = gateway_folder(root, gateway) / "tls"
    there = folder / "server.crt"
    former = read_certificate(there).names if there.exists() else ()
    for file in make_certificates(folder, names or former or ("localhost", "127.0.0.1"), days):
        print_line(str(file))
    made = read_certificate(folder / "server.crt")
    note(f"for {', '.join(made.names)} until {made.ends:%Y-%m-%d}; callers need {folder / 'ca.crt'}")
