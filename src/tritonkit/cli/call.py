"""`tritonkit call`: one request from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.caller import (
    ApiKeyFile,
    Authorities,
    Certificate,
    CertificateKey,
    TokenFile,
    caller,
)
from tritonkit.cli.options import Address, AsJson, Timeout
from tritonkit.cli.output import print_json, print_table, to_plain
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.client import ModelSignature, Reply

__all__ = ["command"]

_SHOWN = 6


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a served model.")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="An input: text, @FILE for a file's bytes, @FILE.npy for an array, or JSON numbers.",
        ),
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            metavar="NAME=VALUE",
            help="A value for the model that is not a tensor: a number, true, false, or text.",
        ),
    ] = None,
    request_id: Annotated[
        str,
        typer.Option(metavar="TEXT", help="An id of the request, for the server's trace and log."),
    ] = "",
    classes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|OUTPUT=N",
            help="Show the N best classes in place of values, of every output or of the one named.",
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Model version; the server's choice by default.")
    ] = None,
    address: Address = "127.0.0.1:8001",
    ca: Authorities = None,
    certificate: Certificate = None,
    certificate_key: CertificateKey = None,
    api_key_file: ApiKeyFile = None,
    token_file: TokenFile = None,
    timeout_s: Timeout = 30.0,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Show each reply of a decoupled model as it comes: the text of a language model, else a line each.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Call a served model once and show what it answers; through a gateway with --ca and --api-key-file.

    With --stream and --json: an object a line. Ctrl-C ends the work at the server.

    Example: tritonkit call digits --input image=@models/digits/examples/seven.png
    """
    from tritonkit.cli.call_stream import print_stream
    from tritonkit.client import Client

    given = dict(pairs := [_split(text) for text in inputs])
    if len(given) < len(pairs):
        raise UsageError(
            "--input", found="one name is given twice", wanted="each input once", todo="drop one"
        )
    options = caller(ca, certificate, certificate_key, api_key_file, token_file)
    options["timeout_s"] = timeout_s
    with Client(address, **options) as client:
        handle = client.model(model, version)
        values = {name: _value(name, given[name], handle.signature) for name in given}
        more: dict[str, Any] = {
            "parameters": _parameters(parameters or []),
            "request_id": request_id,
            "classification": _classes(classes or []),
        }
        if stream:
            with handle.stream(inputs=values, **more) as replies:
                print_stream(replies, handle.signature, as_json)
            return
        reply = handle.predict(inputs=values, **more)
    if as_json:
        print_json(_facts(reply))
    else:
        _print(reply)


def _split(text: str) -> tuple[str, Any]:
    """Name and value of one --input; a file is read here, before anything is sent."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(
            f"--input {text}", found="no name", wanted="NAME=VALUE, such as image=@seven.png"
        )
    return name, _read_file(name, Path(value[1:])) if value.startswith("@") else value


def _parameters(texts: list[str]) -> dict[str, Any]:
    """The values of --parameter: JSON's numbers, booleans and texts, and all else as the text it is."""
    named: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"--parameter {text}", found="no name", wanted="NAME=VALUE")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        named[name] = read if isinstance(read, (str, int, float)) else value
    return named


def _classes(texts: list[str]) -> int | dict[str, int] | None:
    """The values of --classes: one number for all outputs, or one for each output named."""
    named: dict[str, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not count.isdecimal() or (not name and len(texts) > 1):
            raise UsageError(
                f"--classes {text}", found="no number", wanted="N, or OUTPUT=N of each"
            )
        if not name:
            return int(count)
        named[name] = int(count)
    return named or None


def _value(name: str, text: Any, signature: ModelSignature) -> Any:
    """The value of one input: BYTES are taken as they stand, numbers as JSON."""
    spec = signature.inputs.get(name)
    if isinstance(text, bytes) and spec is not None and spec.datatype != "BYTES":
        raise UsageError(
            f"--input {name}",
            found="the bytes of a file",
            wanted=f"{spec.datatype} numbers of shape {list(spec.dims)}: @FILE.npy or JSON",
        )
    # An unknown name goes on as it is: the client knows the nearest one.
    if not isinstance(text, str) or spec is None or spec.datatype == "BYTES":
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"--input {name}",
            found=f"{text[:60]!r} is not JSON: {error}",
            wanted=f"{spec.datatype} numbers of shape {list(spec.dims)}, or @FILE.npy",
        ) from None


def _read_file(name: str, path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            import numpy as np

            return np.load(path, allow_pickle=False)
        return path.read_bytes()
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--input {name}", found=f"{path} cannot be read: {reason}") from None


def _facts(reply: Reply) -> dict[str, Any]:
    return {
        "model": reply.model,
        "version": reply.version,
        "outputs": {name: to_plain(reply[name]) for name in reply},
        "total_ms": round(reply.timing.total_s * 1000, 3),
    }


def _print(reply: Reply) -> None:
    rows = []
    for name in reply:
        array = reply[name]
        shape = "x".join(map(str, array.shape))
        values = [_text(value) for value in array.ravel()[:_SHOWN]]
        more = "" if array.size <= _SHOWN else f" ... ({array.size} values)"
        rows.append([name, shape, " ".join(values) + more])
    title = f"{reply.model} version {reply.version}, {reply.timing.total_s * 1000:.1f} ms"
    print_table(title, ["output", "shape", "values"], rows)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return (
        f"{value:.4f}"
        if getattr(value, "dtype", None) is not None and value.dtype.kind == "f"
        else str(value)
    )
