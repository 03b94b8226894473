"""A part of a language model's answer, the same for all kinds of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Piece"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A model's addition to one choice.

    Args:
        choice: the choice's number.
        text: the added text; may be empty.
        tokens: numbers of the tokens since the piece before.
        logprobs: natural logarithms of their probabilities, if the request wants them.
        finish_reason: `stop`, `length` or `tool_calls` in the last piece, else None.
        prompt_tokens: tokens of the prompt, in the last piece, if the model counts them.
        calls: calls of tools, in the last piece.
        count: the number of tokens, if a model does not report which; else 0.
    """

    choice: int
    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int = 0
    count: int = 0
    calls: tuple[dict[str, Any], ...] = ()

    @property
    def made(self) -> int:
        """The number of its tokens."""
        return self.count or len(self.tokens)
