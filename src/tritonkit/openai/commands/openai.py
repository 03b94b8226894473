"""`tritonkit openai`: an OpenAI-compatible HTTP server before a Triton endpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.caller import API_KEY, TOKEN, Caller
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import Address, project_folder, read_key
from tritonkit.cli.output import note, print_line
from tritonkit.errors import UsageError
from tritonkit.openai.settings import OpenAISettings
from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.client.options import Options
    from tritonkit.openai.certificate import ServedCertificate

__all__ = ["command"]


@dataclass(frozen=True)
class OpenAIAccess:
    """The server's certificate, and the keys that it accepts and presents."""

    tls_certificate: Annotated[
        Path | None,
        Option(
            "PEM file of this server's certificate; turns TLS on, and is read again when it changes.", metavar="FILE"
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Option("PEM file of its private key, which only its owner may read.", metavar="FILE")
    ] = None
    key_file: Annotated[
        Path | None,
        Option("File with the keys that callers may use, one a line; without it callers need no key.", metavar="FILE"),
    ] = None
    without_key: Annotated[bool, Option("Serve other machines without a key, too.")] = False
    admin_key_file: Annotated[
        Path | None,
        Option(
            "File with Triton's admin key, to list all models; found by itself for a server on this machine.",
            metavar="FILE",
        ),
    ] = None
    allow_plaintext_credentials: Annotated[
        bool, Option("Send the key without TLS to another machine, where the network can read it.")
    ] = False


@expanded("openai")
def command(
    settings: partial[OpenAISettings],
    access: OpenAIAccess,
    caller: Caller,
    chat_template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[MODEL=]PATH",
            help="File with a chat template in Jinja, or the folder of a checkpoint that has one, for models on GPUs"
            " that take only text; may be repeated. Those of this project's models/ are found by themselves.",
        ),
    ] = None,
    address: Address = "127.0.0.1:8001",
) -> None:
    """Answer OpenAI's API (chats, embeddings, reranking, speech) from the models of a Triton server, until Ctrl-C.

    Example: tritonkit openai --address 127.0.0.1:8001 --port 8000 --key-file callers.keys
    """
    from tritonkit.openai import read_keys, run_openai
    from tritonkit.openai.templates import read_chats

    options = caller.options()
    if settings.keywords["forward_keys"]:
        _check_forwarding(access, options)
    else:
        options["admin_key"] = read_key(access.admin_key_file, address)
    options["allow_plaintext_credentials"] = access.allow_plaintext_credentials
    made = settings(
        address=address,
        client=options,
        certificate=_certificate(access.tls_certificate, access.tls_key),
        keys=() if access.key_file is None else read_keys(access.key_file),
        chats=read_chats(chat_template or (), _checkpoints()),
    )
    _check_reach(made, access)

    logging.getLogger("tritonkit.openai").addHandler(_Notes())

    def print_ready(url: str) -> None:
        print_line(f"openai  {url}/v1")

    run_openai(made, ready=print_ready)


class _Notes(logging.Handler):
    """The server's log, with details that callers do not get."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record after its time."""
        note(f"{datetime.now():%Y-%m-%d %H:%M:%S} {record.getMessage()}")


def _check_reach(settings: OpenAISettings, access: OpenAIAccess) -> None:
    """Refuse to serve other machines without a key, unless the user allows it."""
    if settings.asks() or settings.is_local():
        return
    if not access.without_key:
        raise UsageError(
            f"--host {settings.host}",
            found="other machines could call without a key",
            wanted="--key-file FILE, or --forward-keys before a gateway",
            todo="or give --without-key if something else keeps callers out",
        )
    note("every caller that reaches this server may use it: it requires no key")


def _check_forwarding(access: OpenAIAccess, options: Options) -> None:
    """Refuse keys of this server's own: a forwarded request carries its caller's."""
    settings = {
        "--key-file": access.key_file,
        "--admin-key-file": access.admin_key_file,
        f"--api-key-file (or {API_KEY})": options.get("api_key"),
        f"--token-file (or {TOKEN})": options.get("bearer"),
    }
    for name, value in settings.items():
        if value is not None:
            raise UsageError(
                "--forward-keys",
                found=f"{name} as well",
                wanted="one of them: requests go on with their callers' keys, or as this server's own",
                todo=f"leave out {name}",
            )
    del options["api_key"], options["bearer"]


def _checkpoints() -> Mapping[str, Path]:
    """Checkpoints of the project that contains the working folder, if there is one."""
    from tritonkit.openai.templates import find_checkpoints

    try:
        return find_checkpoints(project_folder(None))
    except UsageError:
        return {}


def _certificate(certificate: Path | None, key: Path | None) -> ServedCertificate | None:
    from tritonkit.openai.certificate import ServedCertificate

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        option, missing = ("--tls-key", "--tls-certificate")[:: 1 if certificate is None else -1]
        raise UsageError(option, found=f"no {missing}", wanted="both", todo=f"give {missing} FILE, too")
    return ServedCertificate(certificate, key)
