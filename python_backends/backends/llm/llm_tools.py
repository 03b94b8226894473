"""Tools that a chat offers to the model, and the grammars of answers: a format, or a call that has to be made."""

from __future__ import annotations

import json
import re
from typing import Any

from llm_schema import Grammar, SchemaError, check_bounds, grammar_of, literal

MOST_TOOLS = 128
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
_ANY_OBJECT = {"type": "object"}


def read_tools(text: str) -> list[Any]:
    """The tools of a request, as OpenAI has them.

    Raises:
        SchemaError: they are wrong, too many or too large.
    """
    tools = _json("tools", text)
    if not isinstance(tools, list) or not 1 <= len(tools) <= MOST_TOOLS:
        many = len(tools) if isinstance(tools, list) else "no list"
        raise SchemaError(f"tools: found {many}, wanted a list of 1 to {MOST_TOOLS}")
    check_bounds(tools, "tools")
    names = [_name_of(tool, f"tools.{number}") for number, tool in enumerate(tools)]
    if len(set(names)) < len(names):
        raise SchemaError("tools: found a name twice, wanted different names")
    return tools


def _name_of(tool: Any, where: str) -> str:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("parameters", {}), dict):
        raise SchemaError(f'{where}: found another value, wanted {{"type": "function", "function": {{...}}}}')
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SchemaError(f"{where}.function.name: found {str(name)[:64]!r}, wanted 1 to 64 letters, digits, _ or -")
    return name


def format_grammar(text: str) -> str:
    """The grammar of a `response_format`; empty for plain text.

    Raises:
        SchemaError: it is wrong, or cannot be held.
    """
    form = _json("response_format", text)
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return ""
    if kind == "json_object":
        return grammar_of(_ANY_OBJECT)
    held = form.get("json_schema") if kind == "json_schema" else None
    if not isinstance(held, dict) or "schema" not in held:
        wanted = "type text, json_object, or json_schema with json_schema.schema"
        raise SchemaError(f"response_format: found another value, wanted {wanted}")
    try:
        return grammar_of(held["schema"])
    except SchemaError as error:
        raise SchemaError(f"response_format.json_schema.{error}") from None


def call_grammar(text: str, tools: list[Any], form: str) -> str:
    """The grammar of the one call that `tool_choice` demands; empty for `auto`.

    Args:
        text: OpenAI's value, as JSON.
        tools: the tools.
        form: the template's form of calls: `tags`, `list` or `json`.

    Raises:
        SchemaError: it is wrong, names no tool, or arguments cannot be held to their schema.
    """
    choice = _json("tool_choice", text)
    if choice == "auto":
        return ""
    chosen = list(enumerate(tools))
    if choice != "required":
        function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        chosen = [(number, tool) for number, tool in chosen if tool["function"]["name"] == name]
        if not chosen:
            raise SchemaError("tool_choice: found no name of a tool, wanted auto, required or a function of tools")
    grammar = Grammar()
    key = "parameters" if form == "json" else "arguments"
    calls = {}
    for number, tool in chosen:
        function = tool["function"]
        try:
            arguments = grammar.add(function.get("parameters") or _ANY_OBJECT)
        except SchemaError as error:
            raise SchemaError(f"tools.{number}.function.parameters: {error}") from None
        calls[f'{{"name": "{function["name"]}", "{key}": '] = f'{arguments} "}}"'
    call = grammar.choice(calls)
    around = {"tags": ("<tool_call>\n", "\n</tool_call>"), "list": ("[TOOL_CALLS][", "]"), "json": ("", "")}[form]
    before, after = (f" {literal(part)} " if part else "" for part in around)
    return grammar.written(f"{before}{call}{after}")


def form_of(template: str) -> str:
    """The form in which a template has calls of tools: `tags` (Hermes, Qwen), `list` (Mistral) or `json` (Llama)."""
    if "<tool_call>" in template:
        return "tags"
    return "list" if "[TOOL_CALLS]" in template else "json"


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name}: found no JSON ({str(error)[:100]}), wanted JSON") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
