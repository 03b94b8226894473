"""Untrusted text (from a server, a model folder, a log, a file of figures), made safe for a terminal."""

from __future__ import annotations

import re

__all__ = ["barred", "first_line", "is_number", "printable", "short_numbers"]

# DEL and C1: a terminal acts on them. Line separators; embeddings, overrides and isolates, which show
# text in another order than it has (CVE-2021-42574); lone surrogates, which no terminal can be sent.
_REST = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f" + _REST)
_UNSAFE_OR_BREAK = re.compile(r"[\x00-\x1f" + _REST)

_LONG = re.compile(r"\d{41,}")


def printable(text: str, *, lines: bool = True) -> str:
    r"""The text with all terminal controls written out: an escape as `\x1b`, an override as `\u202e`.

    Args:
        lines: whether newlines and tabs stay, as in a log; else they are written out too.
    """
    if not lines:
        return _UNSAFE_OR_BREAK.sub(_escaped, text)
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def barred(text: str) -> str:
    """`printable`, with a bar before further lines, so that none can pass for tritonkit's own, such as `do:`."""
    return printable(text).rstrip("\n").replace("\n", "\n  | ")


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def short_numbers(text: str) -> str:
    """The text with whole numbers of more than 40 digits cut short."""
    return _LONG.sub(lambda match: f"{match[0][:10]}... ({len(match[0])} digits)", text)


def first_line(error: BaseException) -> str:
    """An exception's message, in one line."""
    return next(iter(str(error).strip().splitlines()), "no message")


def is_number(text: str) -> bool:
    """Whether a text reads as a number; infinities and `nan` do."""
    try:
        float(text)
    except ValueError:
        return False
    return True
