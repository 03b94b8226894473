"""Options of commands that call as a gateway wants it: TLS, and a key or token that is never an argument."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tritonkit.client import Secret
    from tritonkit.client.options import Options

__all__ = ["API_KEY", "TOKEN", "ApiKeyFile", "Authorities", "Certificate", "CertificateKey", "TokenFile", "caller"]

API_KEY, TOKEN = "TRITONKIT_API_KEY", "TRITONKIT_TOKEN"

Authorities = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="PEM of the authorities that the server's certificate may be of, and TLS; grpcs:// alone takes the "
        "system's.",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="PEM of this caller's own (mutual TLS).")
]
CertificateKey = Annotated[
    Path | None, typer.Option("--certificate-key", metavar="FILE", help="Its private key, if it is elsewhere.")
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help=f"File with an API key of a gateway; else the environment's {API_KEY}, if it is set.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"File with a JSON Web Token; else the environment's {TOKEN}, if it is set.",
    ),
]


def caller(
    ca: Path | None,
    certificate: Path | None,
    certificate_key: Path | None,
    api_key_file: Path | None,
    token_file: Path | None,
) -> Options:
    """A client's settings for these options.

    Raises:
        UsageError: a file that cannot be read or is not what it should be.
    """
    from tritonkit.client import TLS

    options: Options = {"api_key": _secret(api_key_file, API_KEY), "bearer": _secret(token_file, TOKEN)}
    if ca or certificate or certificate_key:
        options["tls"] = TLS(ca=ca, certificate=certificate, key=certificate_key)
    return options


def _secret(file: Path | None, variable: str) -> Secret | None:
    from tritonkit.client import Secret

    if file is not None:
        return Secret.from_file(file)
    return Secret.from_env(variable) if os.environ.get(variable) else None
