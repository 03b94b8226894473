"""The parts of a chat's body about tools and formats of answers, as OpenAI publishes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["MOST_TOOLS", "AnswerFormat", "StrictBody", "Tool", "ToolCalls", "ToolChoice", "kept_nulls"]

MOST_TOOLS = 128
_MOST_CALLS = 128
Name = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]


class StrictBody(BaseModel):
    """A body without unknown parameters."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class _Function(StrictBody):
    name: Name
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Tool(StrictBody):
    """A function that the model may call."""

    type: Literal["function"]
    function: _Function

    def shown(self) -> dict[str, Any]:
        """The tool as templates know it."""
        return {"type": self.type, "function": self.function.model_dump(exclude_unset=True, exclude={"strict"})}


class _Named(StrictBody):
    name: Name


class _Chosen(StrictBody):
    type: Literal["function"]
    function: _Named


def _choice(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") != "function":
        raise ValueError("none, auto, required, or a function by its name; no other choice is supported")
    return value


ToolChoice = Annotated[Literal["none", "auto", "required"] | _Chosen, BeforeValidator(_choice)]


def _arguments(value: Any) -> Any:
    """A call's arguments: a text with a JSON object."""
    if not isinstance(value, str):
        raise ValueError("a text with a JSON object")
    try:
        arguments = json.loads(value or "{}")
    except (ValueError, RecursionError):
        raise ValueError("the text is not JSON") from None
    if not isinstance(arguments, dict):
        raise ValueError("the text is not a JSON object")
    return arguments


class _Called(StrictBody):
    name: Name
    arguments: Annotated[dict[str, Any], BeforeValidator(_arguments)]


class ToolCall(StrictBody):
    """A call that an earlier answer made. Templates get its arguments as an object."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    function: _Called


ToolCalls = Annotated[list[ToolCall], Field(max_length=_MOST_CALLS)]


class _Schema(StrictBody):
    name: Name = "schema"
    description: str = ""
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool = False


class AnswerFormat(StrictBody):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None

    def sent(self) -> dict[str, Any] | None:
        """The value for the model's input; None for plain text."""
        if self.type == "json_schema":
            assert self.json_schema is not None  # noqa: S101  checked with the body
            return {"type": self.type, "json_schema": {"schema": self.json_schema.schema_}}
        return None if self.type == "text" else {"type": self.type}


def kept_nulls(content: Mapping[str, Any], stripped: Mapping[str, Any]) -> dict[str, Any]:
    """A body without nulls, but with the schemas as they came: there a null is a value.

    Args:
        content: the body as it came.
        stripped: the body without members that are null.
    """
    body = dict(stripped)
    form = content.get("response_format")
    held = form.get("json_schema") if isinstance(form, dict) else None
    if isinstance(held, dict) and isinstance(held.get("schema"), dict):
        body["response_format"]["json_schema"]["schema"] = held["schema"]
    given, kept = content.get("tools"), body.get("tools")
    if isinstance(given, list) and isinstance(kept, list):
        _keep_parameters(given, kept)
    return body


def _keep_parameters(given: Sequence[Any], kept: Sequence[Any]) -> None:
    for before, after in zip(given, kept, strict=True):
        function = before.get("function") if isinstance(before, dict) else None
        if isinstance(function, dict) and isinstance(function.get("parameters"), dict):
            after["function"]["parameters"] = function["parameters"]
