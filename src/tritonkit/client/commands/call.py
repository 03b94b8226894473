"""`tritonkit call`: one request from the shell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.caller import Caller
from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import Address, AsJson, Timeout
from tritonkit.cli.output import note, print_json, print_table, to_plain
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.client import Reply

__all__ = ["command"]

_SHOWN = 6


@expanded("call")
def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="Name of a served model.")
    ],
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
        str, typer.Option(metavar="TEXT", help="An id of the request, for the server's trace and log.")
    ] = "",
    classes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|OUTPUT=N",
            help="Show the N best classes in place of values, of every output or of the one named.",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="Model version; the server's choice by default.")] = None,
    *,
    caller: Caller,
    address: Address = "127.0.0.1:8001",
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
    from tritonkit.client import Client
    from tritonkit.client.commands.call_stream import print_stream
    from tritonkit.perf.load.inputs import read_inputs, split_inputs

    given = split_inputs(inputs)
    options = caller.options()
    options["timeout_s"] = timeout_s
    with Client(address, **options) as client:
        handle = client.model(model, version)
        converted: list[str] = []
        values = read_inputs(given, handle.signature, converted)
        for line in converted:
            note(line)
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
        if missing := [name for name in handle.signature.outputs if name not in reply.outputs]:
            note(_missing(reply, missing))
    if as_json:
        print_json(_facts(reply))
    else:
        _print(reply)


def _missing(reply: Reply, names: list[str]) -> str:
    """Note about outputs that the model has by its configuration, and did not give."""
    word, it = ("outputs", "them") if len(names) > 1 else ("output", "it")
    return (
        f"{reply.model} gave no {word} {', '.join(names)}, though its configuration has {it};"
        " Triton leaves out what a Python model gives under another name"
    )


def _parameters(texts: list[str]) -> dict[str, Any]:
    """The values of --parameter: JSON numbers, booleans and texts; anything else is taken as text."""
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
            raise UsageError(f"--classes {text}", found="no number", wanted="N, or OUTPUT=N for each output")
        if not name:
            return int(count)
        named[name] = int(count)
    return named or None


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
    return f"{value:.4f}" if getattr(value, "dtype", None) is not None and value.dtype.kind == "f" else str(value)
