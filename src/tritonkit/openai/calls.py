"""Calls of tools in a model's text, in the forms that common models write.

Hermes and Qwen put each call as JSON between tags, Mistral a list, or a name and its arguments, after a mark, and
Llama 3 writes JSON alone. A text that is none of these, or calls what was not offered, is the answer's content.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Collection, Iterator
from typing import Any

__all__ = ["CallReader"]

_TAG, _END_TAG, _LIST, _ARGUMENTS, _PYTHON = "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"
_MARKS = (_TAG, _LIST, _PYTHON)
_LETTERS = string.ascii_letters + string.digits
_ID_LETTERS = 9
"""Templates of Mistral refuse other lengths."""
_NAME = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})" + re.escape(_ARGUMENTS))
_BETWEEN = re.compile(r"[\s;]*")
_DECODER = json.JSONDecoder(parse_constant=lambda name: _fail(name))


class CallReader:
    """Parts one answer's text into content, which leaves as it comes, and calls, which are known at its end.

    Args:
        names: the tools that were offered.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._started = self._calling = False

    def add(self, text: str) -> str:
        """The content that may leave now."""
        self._held += text
        if self._calling:
            return ""
        if not self._started:
            begun = self._held.lstrip()
            if not begun:
                return ""
            self._started, self._calling = True, begun[0] in "{["
            if self._calling:
                return ""
        at = min((place for mark in _MARKS if (place := self._held.find(mark)) >= 0), default=-1)
        self._calling = at >= 0
        return self._leave(at if self._calling else len(self._held) - _waiting(self._held))

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """The remaining content and the calls."""
        text, self._held = self._held, ""
        try:
            calls = [self._call(value) for value in _values(text)] if self._calling else []
        except (ValueError, RecursionError):
            calls = []
        return ("", calls) if calls else (text, [])

    def _leave(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _call(self, value: Any) -> dict[str, Any]:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._names:
            raise ValueError("no call of a tool")
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = _DECODER.decode(arguments)
        if not isinstance(arguments, dict):
            raise ValueError("arguments that are not an object")
        number = "".join(secrets.choice(_LETTERS) for _ in range(_ID_LETTERS))
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return {"id": number, "type": "function", "function": function}


def _values(text: str) -> Iterator[Any]:
    """The calls in a text, as they are written.

    Raises:
        ValueError: it has other text than calls.
    """
    text = text.strip()
    if text.startswith(_TAG):
        for part in text.split(_TAG)[1:]:
            yield from _objects(part.strip().removesuffix(_END_TAG))
        return
    for part in text.split(_LIST):
        if named := _NAME.match(part):
            [arguments] = _objects(part[named.end() :])
            yield {"name": named[1], "arguments": arguments}
        else:
            yield from _objects(part.removeprefix(_PYTHON))


def _objects(text: str) -> Iterator[Any]:
    """The objects of JSON in a text: one after the other, or in lists."""
    at, end = _BETWEEN.match(text).end(), len(text.rstrip())  # type: ignore[union-attr]
    while at < end:
        value, at = _DECODER.raw_decode(text, at)
        yield from value if isinstance(value, list) else [value]
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]


def _waiting(text: str) -> int:
    """Length of the longest end of a text that may be the beginning of a mark."""
    most = min(len(text), max(map(len, _MARKS)) - 1)
    ends = (size for size in range(most, 0, -1) if any(mark.startswith(text[-size:]) for mark in _MARKS))
    return next(ends, 0)


def _fail(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
