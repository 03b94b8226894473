"""Responses to chats and completions: whole, and as the chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonkit.openai.piece import Piece

__all__ = ["Choice", "Completion"]


@dataclass(slots=True)
class Choice:
    """One growing answer: its text stays in pieces until it is complete."""

    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int = 0

    def add(self, piece: Piece) -> None:
        """Add a piece to this choice."""
        self.texts.append(piece.text)
        self.tokens += piece.tokens
        self.logprobs += piece.logprobs
        self.calls += piece.calls
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.prompt_tokens = piece.prompt_tokens or self.prompt_tokens


class Completion:
    """The answer to a chat or a prompt, with all its choices.

    Args:
        model: the model's name.
        chat: whether it answers a chat.
        choices: the number of choices.
        per_prompt: the number of choices with the same prompt, which is counted once.
        logprobs: whether the request wants them.
        keep: whether to keep the texts for `whole`.
    """

    def __init__(
        self, model: str, *, chat: bool, choices: int, per_prompt: int = 1, logprobs: bool = False, keep: bool = True
    ) -> None:
        self._chat = chat
        self._per_prompt = per_prompt
        self._logprobs = logprobs
        self._choices = [Choice() for _ in range(choices)]
        self._counts = [0] * choices
        self._keep = keep
        self._begun: set[int] = set()
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def add(self, piece: Piece) -> None:
        """Add a piece to its choice."""
        choice = self._choices[piece.choice]
        self._counts[piece.choice] += piece.made
        if self._keep:
            choice.add(piece)
        elif piece.prompt_tokens:
            choice.prompt_tokens = piece.prompt_tokens

    def usage(self) -> dict[str, int]:
        """Tokens of the prompts, each counted once, and of all answers."""
        prompt_tokens = sum(choice.prompt_tokens for choice in self._choices[:: self._per_prompt])
        made = sum(self._counts)
        return {"prompt_tokens": prompt_tokens, "completion_tokens": made, "total_tokens": prompt_tokens + made}

    def whole(self) -> dict[str, Any]:
        """The whole answer as one object."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = [self._whole(number, choice) for number, choice in enumerate(self._choices)]
        return self._head | {"object": kind, "choices": choices, "usage": self.usage()}

    def _whole(self, number: int, choice: Choice) -> dict[str, Any]:
        text = "".join(choice.texts)
        content: dict[str, Any] = {"text": text}
        if self._chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if choice.calls:
                message |= {"content": text or None, "tool_calls": choice.calls}
            content = {"message": message}
        return content | self._rest(number, choice.tokens, choice.logprobs, choice.finish_reason)

    def chunk(self, piece: Piece, with_usage: bool = False) -> dict[str, Any]:
        """A piece as an event of a stream."""
        content: dict[str, Any] = {"text": piece.text}
        if self._chat:
            first = {} if piece.choice in self._begun else {"role": "assistant"}
            delta: dict[str, Any] = {} if piece.calls and not piece.text else {"content": piece.text}
            if piece.calls:
                delta["tool_calls"] = [{"index": number} | call for number, call in enumerate(piece.calls)]
            content = {"delta": first | delta}
            self._begun.add(piece.choice)
        choice = content | self._rest(piece.choice, piece.tokens, piece.logprobs, piece.finish_reason)
        return self._chunk([choice], {"usage": None} if with_usage else {})

    def last(self) -> dict[str, Any]:
        """The event with the usage, which ends a stream if the request wants it."""
        return self._chunk([], {"usage": self.usage()})

    def _chunk(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return self._head | {"object": kind, "choices": choices} | more

    def _rest(
        self, number: int, tokens: Sequence[int], logprobs: Sequence[float], reason: str | None
    ) -> dict[str, Any]:
        made = self._logarithms(tokens, logprobs) if self._logprobs else None
        return {"index": number, "logprobs": made, "finish_reason": reason}

    def _logarithms(self, tokens: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
        """Log probabilities of tokens, named by number: a token need not be text by itself."""
        names = [f"token_id:{token}" for token in tokens]
        if not self._chat:
            return {"tokens": names, "token_logprobs": list(logprobs), "top_logprobs": None, "text_offset": None}
        content: list[dict[str, Any]] = [
            {"token": name, "logprob": value, "bytes": None, "top_logprobs": []}
            for name, value in zip(names, logprobs, strict=False)
        ]
        return {"content": content, "refusal": None}
