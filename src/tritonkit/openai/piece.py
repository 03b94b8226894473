"""A part of a language model's answer, whichever kind of model it is of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Piece"]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a model has added to one choice.

    Args:
        choice: its number.
        text: may be empty.
        tokens: numbers of the tokens since the piece before.
        logprobs: natural logarithms of their probabilities, if they were asked for.
        finish_reason: `stop` or `length` in the last piece, else None.
        prompt_tokens: in the last piece, if the model counts them.
        count: of the tokens, where a model gives no numbers of them; else 0.
    """

    choice: int
    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int = 0
    count: int = 0

    @property
    def made(self) -> int:
        """How many tokens came with it."""
        return self.count or len(self.tokens)
