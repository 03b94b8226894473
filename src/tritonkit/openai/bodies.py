"""Bodies of requests in the ranges that OpenAI publishes; unknown and unsupported parameters are refused by name.

docs/openai.md has a line for each parameter, and a test compares it with this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import from_json

from tritonkit.openai.messages import Message
from tritonkit.openai.problems import invalid, unread
from tritonkit.openai.tool_bodies import MOST_TOOLS, AnswerFormat, StrictBody, Tool, ToolChoice, kept_nulls

__all__ = [
    "ChatBody",
    "ClassifyBody",
    "CompletionBody",
    "EmbeddingBody",
    "Message",
    "RerankBody",
    "Sampled",
    "StrictBody",
    "checked_body",
    "read_body",
]

MOST_MESSAGES, MOST_PROMPTS, MOST_TEXTS = 1024, 16, 2048
MOST_CHOICES = 128
"""Most answers to one request, as in OpenAI's API: each takes a place in the model's running batch or waits for one."""
MOST_TOKENS = 2048
"""Tokens of one input to embed."""
_LEAST_TOP_P = 1e-6
"""Replaces 0, which OpenAI accepts and engines refuse: only the most likely token."""

_IGNORED = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
)
"""Parameters that change no answer; any value is accepted."""

_NOTHING: tuple[Any, ...] = ([], {})
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "audio": _NOTHING,
    "best_of": (1,),
    "dimensions": (),
    "echo": (False,),
    "function_call": ("none",),
    "functions": _NOTHING,
    "logit_bias": _NOTHING,
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": _NOTHING,
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Unsupported parameters, each with its values that have no effect."""

Text = Annotated[str, Field(min_length=1)]


def _listed(value: Any) -> Any:
    """Make a single text a list of one."""
    return [value] if isinstance(value, str) else value


def _inputs(value: Any) -> Any:
    """The input to embed, as a list of texts or of lists of tokens."""
    listed = [value] if isinstance(value, str) or _are_tokens(value) else value
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_TEXTS:
        raise ValueError(f"a text, or 1 to {MOST_TEXTS} of them, or tokens as numbers")
    if all(isinstance(item, str) for item in listed):
        if not all(listed):
            raise ValueError("an empty text cannot be embedded")
    elif not all(_are_tokens(item) and len(item) <= MOST_TOKENS for item in listed):
        raise ValueError(f"texts alone, or lists of 1 to {MOST_TOKENS} tokens alone")
    return listed


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int and 0 <= token < 2**31 for token in value)


def _texts(value: Any) -> Any:
    """The texts to classify, as a list."""
    listed = _listed(value)
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_TEXTS:
        raise ValueError(f"a text, or 1 to {MOST_TEXTS} of them")
    return listed


def _documents(value: Any) -> Any:
    """The documents as texts; some clients wrap each in an object."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TEXTS:
        raise ValueError(f"1 to {MOST_TEXTS} texts")
    return [item["text"] if isinstance(item, dict) and set(item) == {"text"} else item for item in value]


class _StreamOptions(StrictBody):
    include_usage: bool = False
    include_obfuscation: bool = False


class Sampled(StrictBody):
    """The common part of chats and completions. Each setting goes to the model's input of the same name."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[list[Text], BeforeValidator(_listed), Field(max_length=16)] | None = None
    ignore_eos: bool | None = None

    def with_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def settings(self) -> dict[str, Any]:
        """Values for the model's inputs, without omitted ones; each choice has its own seed."""
        values = {name: getattr(self, name) for name in _SETTINGS}
        if self.top_p is not None:
            values["top_p"] = max(self.top_p, _LEAST_TOP_P)
        return {
            name: value if isinstance(value, list) else [value]
            for name, value in values.items()
            if value is not None and value != []
        }


_SETTINGS = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "ignore_eos",
)


class ChatBody(Sampled):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    logprobs: bool = False
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] = []
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: AnswerFormat = AnswerFormat(type="text")

    def settings(self) -> dict[str, Any]:
        """The inherited values, with the newer name of `max_tokens`, and what the answer is held to."""
        values = super().settings()
        if self.max_completion_tokens is not None:
            values["max_tokens"] = [self.max_completion_tokens]
        form = self.response_format.sent()
        if form is not None:
            values["response_format"] = [json.dumps(form, ensure_ascii=False)]
        if self.offered and self.forced:
            chosen = self.tool_choice if isinstance(self.tool_choice, str) else self.tool_choice.model_dump()
            values["tool_choice"] = [json.dumps(chosen)]
        return values

    @property
    def offered(self) -> list[Tool]:
        """The tools that the model may call in this answer."""
        return [] if self.tool_choice == "none" else self.tools

    @property
    def forced(self) -> bool:
        """Whether the answer has to be a call."""
        return self.tool_choice not in ("none", "auto")


class CompletionBody(Sampled):
    """The body of `/v1/completions`."""

    prompt: Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1, max_length=MOST_PROMPTS)]
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None


class EmbeddingBody(StrictBody):
    """The body of `/v1/embeddings`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    input: Annotated[list[Any], BeforeValidator(_inputs)]
    """Texts, or lists of tokens."""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class RerankBody(StrictBody):
    """The body of `/v1/rerank`, as Jina, Cohere and vLLM have it."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    query: Text
    documents: Annotated[list[str], BeforeValidator(_documents)]
    top_n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    return_documents: bool = True


class ClassifyBody(StrictBody):
    """The body of `/v1/classify`, as vLLM has it."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    input: Annotated[list[str], BeforeValidator(_texts)]


Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], data: bytes) -> Body:
    """A request's body.

    Raises:
        Problem: the body is not a JSON object, is nested too deep, or has a wrong or unsupported parameter.
    """
    try:
        content = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(content, dict):
        raise invalid("the body is not a JSON object", code="invalid_json")
    return checked_body(kind, kept_nulls(content, _without_nulls(content)))


def checked_body(
    kind: type[Body], content: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]] = _REFUSED
) -> Body:
    """The body with these parameters.

    Args:
        kind: the body's model.
        content: its parameters.
        refused: unsupported parameters, each with its values that have no effect.

    Raises:
        Problem: a parameter is wrong or not supported.
    """
    fields = {name: value for name, value in content.items() if name not in _IGNORED}
    for name in [name for name in fields if name in refused and name not in kind.model_fields]:
        # 1 == True in Python, and not in JSON.
        value = fields.pop(name)
        if not any(value == none and type(value) is type(none) for none in refused[name]):
            raise invalid(f"{name}: this server does not support it", name, "unsupported_parameter")
    try:
        body = kind.model_validate(fields)
    except ValidationError as error:
        raise unread(error) from None
    _check_together(body)
    return body


def _without_nulls(value: Any) -> Any:
    """The value without members that are null, at any depth: null means the same as an omission."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _check_together(body: BaseModel) -> None:
    """Check combinations of parameters."""
    if not isinstance(body, Sampled):
        return
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options: it needs stream", "stream_options", "invalid_value")
    if isinstance(body, CompletionBody):
        _check_completion(body)
    if isinstance(body, ChatBody):
        _check_chat(body)


def _check_chat(body: ChatBody) -> None:
    if body.max_tokens and body.max_completion_tokens:
        raise invalid("max_tokens: give max_completion_tokens instead of it, not both", "max_tokens", "invalid_value")
    form = body.response_format
    place = "response_format.json_schema"
    if form.type == "json_schema" and form.json_schema is None:
        raise invalid(f"{place}: it is missing", place, "missing_required_parameter")
    if form.type != "json_schema" and form.json_schema is not None:
        raise invalid(f"{place}: it belongs to the type json_schema, and to no other", place, "invalid_value")
    names = [tool.function.name for tool in body.tools]
    if len(set(names)) < len(names):
        raise invalid("tools: two have the same name", "tools", "invalid_value")
    if body.forced and not isinstance(body.tool_choice, str) and body.tool_choice.function.name not in names:
        raise invalid("tool_choice: it names none of the tools", "tool_choice", "invalid_value")
    if body.forced and not names:
        raise invalid("tool_choice: it needs tools", "tool_choice", "invalid_value")
    if body.offered and not body.parallel_tool_calls and not body.forced:
        message = "parallel_tool_calls: false is supported where tool_choice is required or names a function"
        raise invalid(message, "parallel_tool_calls", "unsupported_parameter")
    if body.offered and form.type != "text":
        message = "response_format: it cannot be used together with tools; give tool_choice none, or text"
        raise invalid(message, "response_format", "unsupported_parameter")
    for number, tool in enumerate(body.offered):
        if tool.function.strict and not body.forced:
            param = f"tools.{number}.function.strict"
            message = (
                f"{param}: arguments are held to the schema only where tool_choice is required or names a function"
            )
            raise invalid(message, param, "unsupported_parameter")


def _check_completion(body: CompletionBody) -> None:
    if len(body.prompt) * body.n > MOST_CHOICES:
        raise invalid(f"n: prompts times n is more than {MOST_CHOICES}", "n", "invalid_value")
    if body.best_of not in (None, body.n):
        raise invalid(
            "best_of: this server returns all answers that it makes, n of them", "best_of", "unsupported_parameter"
        )
    if body.logprobs:
        raise invalid(
            "logprobs: this server returns those of the generated tokens only: 0",
            "logprobs",
            "unsupported_parameter",
        )
