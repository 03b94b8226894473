"""`tritonkit call --stream`: replies as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tritonkit.cli.output import note, print_line, to_plain
from tritonkit.text import printable

if TYPE_CHECKING:
    from tritonkit.client import ModelSignature, Reply

__all__ = ["print_stream"]

_TEXTS = ("text", "text_output")
"""Outputs of a language model that are shown as they are, piece after piece; the second of vLLM and TensorRT-LLM."""


def print_stream(replies: Iterable[Reply], signature: ModelSignature, as_json: bool) -> None:
    """The text of a language model in one piece, of other models a line for each reply; how long it took on standard
    error.

    Args:
        as_json: an object a line instead.
    """
    is_text = any(name in _TEXTS and output.datatype == "BYTES" for name, output in signature.outputs.items())
    show = _show_json if as_json else _show_text if is_text else _show_line
    began = time.monotonic()
    first_s, count = 0.0, 0
    try:
        for reply in replies:
            first_s = first_s or time.monotonic() - began
            count += 1
            show(reply)
    finally:
        if show is _show_text and count:
            print_line()
    took_s = time.monotonic() - began
    note(f"{count} replies, the first after {first_s * 1000:.1f} ms, all after {took_s * 1000:.1f} ms")


def _show_text(reply: Reply) -> None:
    for name in _TEXTS:
        if name in reply.outputs:  # a model may leave outputs of a reply out
            for piece in reply[name].ravel():
                print(printable(piece.decode(errors="replace")), end="", flush=True)


def _show_line(reply: Reply) -> None:
    print_line("  ".join(f"{name}={json.dumps(to_plain(reply[name]))}" for name in reply))


def _show_json(reply: Reply) -> None:
    outputs = {name: reply[name] for name in reply}
    facts = {"model": reply.model, "version": reply.version, "outputs": outputs}
    print(json.dumps(to_plain(facts)), flush=True)
