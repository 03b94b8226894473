"""Calls of a language model: one stream for each choice, all read at the same time."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tritonkit.openai.bodies import ChatBody, CompletionBody
from tritonkit.openai.calls import CallReader
from tritonkit.openai.dialects import OWN, Dialect, Read
from tritonkit.openai.piece import Piece
from tritonkit.openai.problems import Problem, invalid

if TYPE_CHECKING:
    from tritonkit.client import AsyncModel, Reply
    from tritonkit.client.wire.signature import ModelSignature
    from tritonkit.openai.templates import Chat

__all__ = ["choices", "generate"]

_SEEDS = 2**63


def choices(
    body: ChatBody | CompletionBody,
    signature: ModelSignature,
    *,
    dialect: Dialect = OWN,
    chat: Chat | None = None,
    max_tokens: int | None = None,
) -> list[dict[str, Any]]:
    """The inputs of each choice: `n` for a prompt, one prompt after the other.

    Args:
        body: the request's body.
        signature: the model's inputs and outputs.
        dialect: the model's kind.
        chat: the model's template, if the model takes no messages itself.
        max_tokens: default limit on answer tokens; None: the model's own.

    Raises:
        Problem: a setting that the model does not take, or messages that its template does not.
    """
    _check_kind(body, dialect)
    shared = body.settings()
    if max_tokens is not None:
        shared.setdefault("max_tokens", [max_tokens])
    if body.logprobs is not None and body.logprobs is not False:
        shared["logprobs"] = [True]
    made = [
        prompt | shared | seed
        for prompt in _prompts(body, None if dialect.tensors.messages else chat)
        for seed in _seeds(body.seed, body.n)
    ]
    if dialect.translated is not None:
        return [dialect.translated(settings, signature) for settings in made]
    for name in made[0]:
        if name not in signature.inputs:
            param = "n" if name == "seed" and body.seed is None else name
            message = f"{param}: the model {body.model!r} does not take it"
            raise invalid(message, param, "unsupported_parameter")
    return made


def _prompts(body: ChatBody | CompletionBody, chat: Chat | None) -> list[dict[str, Any]]:
    if isinstance(body, CompletionBody):
        return [{"text": [prompt]} for prompt in body.prompt]
    messages = [message.shown() for message in body.messages]
    if chat is not None:
        return [{"text": [chat.prompt(messages)]}]
    prompt = {"messages": [json.dumps(messages, ensure_ascii=False)]}
    if body.offered:
        prompt["tools"] = [json.dumps([tool.shown() for tool in body.offered], ensure_ascii=False)]
    return [prompt]


def _check_kind(body: ChatBody | CompletionBody, dialect: Dialect) -> None:
    """Refuse for engines on GPUs what the project's own engine alone can do."""
    if dialect is OWN or not isinstance(body, ChatBody):
        return
    called = any(message.role == "tool" or message.tool_calls for message in body.messages)
    asked = {
        "messages": called,
        "response_format": body.response_format.sent() is not None,
        "tools": bool(body.offered),
    }
    for name, is_asked in asked.items():
        if is_asked:
            what = "calls of tools in messages" if name == "messages" else name
            message = f"{name}: the engine behind the model {body.model!r} is not given {what} here"
            raise invalid(message, name, "unsupported_parameter")


def _seeds(seed: int | None, n: int) -> list[dict[str, Any]]:
    """Different seeds, the first as given. Without one, the model draws the seed of a single choice."""
    if seed is None and n == 1:
        return [{}]
    first = secrets.randbelow(_SEEDS) if seed is None else seed
    return [{"seed": [first if not i else (first + i) % _SEEDS]} for i in range(n)]


async def generate(
    model: AsyncModel,
    inputs: Sequence[Mapping[str, Any]],
    timeout_s: float,
    sink: Callable[[Piece], Awaitable[None]],
    dialect: Dialect = OWN,
    tools: Collection[str] = (),
) -> None:
    """Call the model for each choice, and yield the pieces as they come; the first error ends all streams.

    Args:
        model: the model.
        inputs: the inputs of each choice.
        timeout_s: seconds for the whole answer.
        sink: receives the pieces.
        dialect: the model's kind.
        tools: names of the tools that the answer may call.

    Raises:
        ClientError: a stream failed.
        Problem: a stream never ends, or not in time.
    """
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            for number, choice_inputs in enumerate(inputs):
                read = dialect.reader(number)
                read = _with_calls(read, tools) if tools else read
                group.create_task(_generate(model, read, choice_inputs, timeout_s, sink))
    except TimeoutError:
        raise Problem(
            504, "no end of the answer within the time allowed", kind="timeout", code="deadline_exceeded"
        ) from None
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _with_calls(read: Read, tools: Collection[str]) -> Read:
    """The reader, whose pieces have calls of tools apart from the content."""
    calls = CallReader(tools)

    def reading(reply: Reply) -> Piece:
        piece = read(reply)
        text = calls.add(piece.text)
        if piece.finish_reason is None:
            return replace(piece, text=text)
        rest, made = calls.end()
        reason = "tool_calls" if made and piece.finish_reason == "stop" else piece.finish_reason
        return replace(piece, text=text + rest, calls=tuple(made), finish_reason=reason)

    return reading


def _first(error: BaseException) -> BaseException:
    """The first error of a group; the others come from streams that were cancelled because of it, or are similar."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _generate(
    model: AsyncModel, read: Read, inputs: Mapping[str, Any], timeout_s: float, sink: Callable[[Piece], Awaitable[None]]
) -> None:
    ended = False
    async with model.stream(inputs=inputs, timeout_s=timeout_s) as replies:
        async for reply in replies:
            piece = read(reply)
            ended = ended or piece.finish_reason is not None
            await sink(piece)
    if not ended:
        raise Problem(500, "the model's answer has no end", code="model_failed")
