"""`tritonkit openai`: an OpenAI-compatible HTTP server before a Triton endpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.caller import API_KEY, TOKEN, ApiKeyFile, Authorities, Certificate, CertificateKey, TokenFile, caller
from tritonkit.cli.options import Address, AllowPlaintext, project_folder, read_key
from tritonkit.cli.output import note, print_line
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.client.options import Options
    from tritonkit.openai.certificate import ServedCertificate

__all__ = ["command"]


def command(
    address: Address = "127.0.0.1:8001",
    host: Annotated[str, typer.Option(help="Where callers connect; by default only this machine can.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PEM of this server's certificate, and TLS; read again when it changes."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM of its private key, of its owner alone.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File with the keys that callers may use, one a line; none: callers need no key."
        ),
    ] = None,
    forward_keys: Annotated[
        bool,
        typer.Option(
            "--forward-keys", help="Hand each caller's key on to the address: a gateway, which decides what it may do."
        ),
    ] = False,
    without_key: Annotated[bool, typer.Option("--without-key", help="Serve other machines too without a key.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this model; may be repeated. By default all that the server has."),
    ] = None,
    chat_template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[MODEL=]PATH",
            help="File with a chat template in Jinja, or a checkpoint's folder that has one, for models on GPUs, which"
            " take text alone; may be repeated. Those of this project's models/ are found by themselves.",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**31 - 1, help="Of an answer, where a request does not say; by default as the model does."
        ),
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Seconds for a whole answer.")] = 600.0,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests under way; more are refused.")] = 256,
    max_body_kib: Annotated[int, typer.Option(min=1, help="Of one request, in KiB.")] = 4096,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with Triton's admin key, to list all models; found by itself for one that runs on this machine.",
        ),
    ] = None,
    ca: Authorities = None,
    certificate: Certificate = None,
    certificate_key: CertificateKey = None,
    api_key_file: ApiKeyFile = None,
    token_file: TokenFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
) -> None:
    """Answer OpenAI's API (chats, completions, embeddings) from the models of a Triton server, until Ctrl-C.

    Example: tritonkit openai --address 127.0.0.1:8001 --port 8000 --key-file callers.keys
    """
    from tritonkit.openai import OpenAISettings, read_keys, run_openai
    from tritonkit.openai.templates import read_chats

    options = caller(ca, certificate, certificate_key, api_key_file, token_file)
    if forward_keys:
        _check_forwarding(key_file, admin_key_file, options)
    else:
        options["admin_key"] = read_key(admin_key_file, address)
    options["allow_plaintext_credentials"] = allow_plaintext_credentials
    settings = OpenAISettings(
        address=address,
        client=options,
        host=host,
        port=port,
        certificate=_certificate(tls_certificate, tls_key),
        keys=() if key_file is None else read_keys(key_file),
        forward_keys=forward_keys,
        names=model or (),
        chats=read_chats(chat_template or (), _checkpoints()),
        max_tokens=max_tokens,
        timeout_s=timeout_s,
        max_requests=max_requests,
        max_body_bytes=max_body_kib << 10,
    )
    if not settings.asks() and not settings.is_local():
        if not without_key:
            raise UsageError(
                f"--host {host}",
                found="other machines could call without a key",
                wanted="--key-file FILE, or --forward-keys before a gateway",
                todo="or --without-key, where something else keeps callers out",
            )
        note("whoever reaches this server may call it: it asks for no key")

    logging.getLogger("tritonkit.openai").addHandler(_Notes())

    def print_ready(url: str) -> None:
        print_line(f"openai  {url}/v1")

    run_openai(settings, ready=print_ready)


class _Notes(logging.Handler):
    """The server's log: what its callers are not told."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it, a time before it."""
        note(f"{datetime.now():%Y-%m-%d %H:%M:%S} {record.getMessage()}")


def _check_forwarding(key_file: Path | None, admin_key_file: Path | None, options: Options) -> None:
    """A request has one key: its caller's."""
    given = {
        "--key-file": key_file,
        "--admin-key-file": admin_key_file,
        f"--api-key-file (or {API_KEY})": options.get("api_key"),
        f"--token-file (or {TOKEN})": options.get("bearer"),
    }
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                "--forward-keys",
                found=f"{name} as well",
                wanted="one of them: requests go on with their callers' keys, or as this server's own",
                todo=f"leave out {name}",
            )
    del options["api_key"], options["bearer"]


def _checkpoints() -> Mapping[str, Path]:
    """Those of the project that the working folder is in, if it is in one."""
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
        given, missing = ("--tls-key", "--tls-certificate")[:: 1 if certificate is None else -1]
        raise UsageError(given, found=f"no {missing}", wanted="both", todo=f"give {missing} FILE, too")
    return ServedCertificate(certificate, key)
