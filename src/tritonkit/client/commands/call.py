"""`tritonkit call`: one request from the shell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.caller import Caller
from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import Address, AsJson, Timeout
from tritonkit.cli.output import note, print_json, print_table, to_plain
from tritonkit.errors import UsageError
from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.client import Reply

__all__ = ["command"]

_SHOWN = 6


@dataclass(frozen=True)
class RequestOptions:
    """The request of `tritonkit call`, and the form of its answer."""

    inputs: Annotated[
        Sequence[str],
        Option(
            "An input: text, @FILE for a file's bytes, @FILE.npy for an array, or JSON numbers.",
            name="--input",
            metavar="NAME=VALUE",
        ),
    ]
    parameters: Annotated[
        Sequence[str] | None,
        Option(
            "A value for the model that is not a tensor: a number, true, false, or text.",
            name="--parameter",
            metavar="NAME=VALUE",
        ),
    ] = None
    request_id: Annotated[str, Option("An id of the request, for the server's trace and log.", metavar="TEXT")] = ""
    classes: Annotated[
        Sequence[str] | None,
        Option(
            "Show the N best classes in place of values, of every output or of the one named.", metavar="N|OUTPUT=N"
        ),
    ] = None
    version: Annotated[int | None, Option("Model version; the server's choice by default.")] = None
    stream: Annotated[
        bool,
        Option("Show each reply of a decoupled model as it comes: the text of a language model, else a line each."),
    ] = False


@expanded("call")
def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="Name of a served model.")
    ],
    request: RequestOptions,
    caller: Caller,
    address: Address = "127.0.0.1:8001",
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Call a served model once and show what it answers; through a gateway with --ca and --api-key-file.

    With --stream and --json: an object a line. Ctrl-C ends the work at the server.

    Example: tritonkit call digits --input image=@models/digits/examples/seven.png
    """
    from tritonkit.client import Client
    from tritonkit.client.commands.call_stream import print_stream
    from tritonkit.perf.load.inputs import read_inputs, split_inputs

    texts = split_inputs(request.inputs)
    options = caller.options()
    options["timeout_s"] = timeout_s
    with Client(address, **options) as client:
        handle = client.model(model, request.version)
        converted: list[str] = []
        values = read_inputs(texts, handle.signature, converted)
        for line in converted:
            note(line)
        more: dict[str, Any] = {
            "parameters": _parameters(request.parameters or []),
            "request_id": request.request_id,
            "classification": _classes(request.classes or []),
        }
        if request.stream:
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
    """A note about configured outputs that the model did not return."""
    word, it = ("outputs", "them") if len(names) > 1 else ("output", "it")
    return (
        f"{reply.model} gave no {word} {', '.join(names)}, though its configuration has {it};"
        " Triton leaves out what a Python model gives under another name"
    )


def _parameters(texts: Sequence[str]) -> dict[str, Any]:
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


def _classes(texts: Sequence[str]) -> int | dict[str, int] | None:
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
