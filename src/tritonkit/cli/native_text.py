"""Text that native libraries write past Python, made harmless for a terminal."""

from __future__ import annotations

import codecs
import contextlib
import os
import re

from tritonkit.text import printable

__all__ = ["NativeText"]

_BREAK = re.compile(r"\r\n|\n|\r")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
"""Colors in ONNX Runtime's log, which are removed; any other control character is written out."""
_LONGEST = 4000


class NativeText:
    """Lines for standard error, each behind a bar: none can pass for a line of tritonkit."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._pending = ""

    def feed(self, data: bytes) -> None:
        """Take text in any pieces; a line is written when it is whole, or longer than any that is read."""
        text = self._pending + self._decoder.decode(data)
        *lines, self._pending = _BREAK.split(text)
        if text.endswith("\r"):  # its "\n" may follow
            self._pending = lines.pop() + "\r"
        if len(self._pending) > _LONGEST:
            lines.append(self._pending)
            self._pending = ""
        self._write(lines)

    def end(self) -> None:
        """Write the last line, which had no end."""
        self._write(_BREAK.split(self._pending + self._decoder.decode(b"", final=True)))
        self._pending = ""

    def _write(self, lines: list[str]) -> None:
        shown = [_harmless(line) for line in lines if line.strip()]
        text = "".join(f"| {line}\n" for line in shown).encode()
        with contextlib.suppress(OSError):  # nobody reads any more
            while text:
                text = text[os.write(self._descriptor, text) :]


def _harmless(line: str) -> str:
    """A line as text, cut where it is longer than any that is read."""
    plain = _COLOR.sub("", line)
    more = f"... ({len(plain)} characters)" if len(plain) > _LONGEST else ""
    return printable(plain[:_LONGEST]) + more
