"""Calls of tools in texts of models, however the text is cut."""
# ruff: noqa: E501  texts of models

from __future__ import annotations

import json
from typing import Any

import pytest

from tritonkit.openai.calls import CallReader

NAMES = ("weather", "stop")
ROME = ("weather", {"place": "Rome"})


def read(pieces: list[str] | str) -> tuple[str, list[tuple[str, Any]]]:
    """The content of a text in pieces, and its calls."""
    reader = CallReader(NAMES)
    text = "".join(reader.add(piece) for piece in pieces)
    rest, calls = reader.end()
    assert all(len(call["id"]) == 9 and call["type"] == "function" for call in calls)
    return text + rest, [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>', "", [ROME]),
        ('Well.<tool_call>{"name": "stop"}</tool_call>\n<tool_call>{"name": "weather", "arguments": {"place": "Rome"}}'
         "</tool_call>", "Well.", [("stop", {}), ROME]),
        ('[TOOL_CALLS][{"name": "weather", "arguments": {"place": "Rome"}}, {"name": "stop"}]', "", [ROME, ("stop", {})]),
        ('[TOOL_CALLS]weather[ARGS]{"place": "Rome"}[TOOL_CALLS]stop[ARGS]{}', "", [ROME, ("stop", {})]),
        ('{"name": "weather", "parameters": {"place": "Rome"}}', "", [ROME]),
        (' {"name": "weather", "parameters": {"place": "Rome"}}; {"name": "stop"}', "", [ROME, ("stop", {})]),
        ('<|python_tag|>{"name": "weather", "parameters": "{\\"place\\": \\"Rome\\"}"}', "", [ROME]),
        ('[{"name": "weather", "arguments": {"place": "Rome"}}]', "", [ROME]),
        ("plain text < [ tool", "plain text < [ tool", []),
        ('{"name": "other", "parameters": {}}', '{"name": "other", "parameters": {}}', []),
        ('{"place": "Rome"}', '{"place": "Rome"}', []),
        ('<tool_call>{"name": "weather", "argu', '<tool_call>{"name": "weather", "argu', []),
        ('<tool_call>{"name": "weather", "arguments": 5}</tool_call>', '<tool_call>{"name": "weather", "arguments": 5}'
         "</tool_call>", []),
        ('{"name": "stop"} and more', '{"name": "stop"} and more', []),
        ("[TOOL_CALLS]" + "[" * 100_000, "[TOOL_CALLS]" + "[" * 100_000, []),
        ("", "", []),
        ("<tool_call", "<tool_call", []),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_calls_are_read(text: str, content: str, calls: list[tuple[str, Any]]) -> None:
    """The same whether the text comes whole or in pieces; a text that calls nothing is content, with all its letters."""
    assert read([text]) == (content, calls)
    assert read([text[at : at + 3] for at in range(0, min(len(text), 3000), 3)] + [text[3000:]]) == (content, calls)


def test_content_leaves_as_it_comes() -> None:
    """Only what may begin a call waits."""
    reader = CallReader(NAMES)
    assert [reader.add(text) for text in ("Hello ", "you <", "b> <to", "ol", "s>")] == [
        "Hello ",
        "you ",
        "<b> ",
        "",
        "<tools>",
    ]
