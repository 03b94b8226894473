"""Options of commands that call a gateway: TLS, and a key or token, which is never an argument."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.client import Secret
    from tritonkit.client.options import Options

__all__ = ["API_KEY", "TOKEN", "Caller"]

API_KEY, TOKEN = "TRITONKIT_API_KEY", "TRITONKIT_TOKEN"


@dataclass(frozen=True)
class Caller:
    """The credentials of a caller, and the authorities that it trusts."""

    ca: Annotated[
        Path | None,
        Option(
            "PEM file of the authorities that may have issued the server's certificate; turns TLS on. With grpcs://"
            " alone the system's authorities are used.",
            metavar="FILE",
        ),
    ] = None
    certificate: Annotated[
        Path | None, Option("PEM file of this caller's certificate (mutual TLS).", metavar="FILE")
    ] = None
    certificate_key: Annotated[
        Path | None, Option("Its private key, if it is in a file of its own.", metavar="FILE")
    ] = None
    api_key_file: Annotated[
        Path | None, Option(f"File with an API key of a gateway; {API_KEY} by default, if set.", metavar="FILE")
    ] = None
    token_file: Annotated[
        Path | None, Option(f"File with a JSON Web Token; {TOKEN} by default, if set.", metavar="FILE")
    ] = None

    def options(self) -> Options:
        """The settings of a client with these credentials.

        Raises:
            UsageError: a file that cannot be read or is not what it should be.
        """
        from tritonkit.client import TLS

        options: Options = {"api_key": _secret(self.api_key_file, API_KEY), "bearer": _secret(self.token_file, TOKEN)}
        if self.ca or self.certificate or self.certificate_key:
            options["tls"] = TLS(ca=self.ca, certificate=self.certificate, key=self.certificate_key)
        return options


def _secret(file: Path | None, variable: str) -> Secret | None:
    from tritonkit.client import Secret

    if file is not None:
        return Secret.from_file(file)
    return Secret.from_env(variable) if os.environ.get(variable) else None
