"""Text from tokens as they come: whole characters only, and nothing from a stop string on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokenizers import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MOST_HELD = 32
"""Most tokens that may wait for the end of a character: four bytes, and more where tokens end in the middle of the next
one. Bytes that are still not text then leave as replacement characters."""
_CONTEXT = 8


class Characters:
    """The text of one sequence's tokens. A token may be part of a character, which then waits for the others.

    Args:
        tokenizer: object that decodes tokens.
        silent: tokens without text: those that end an answer.
        marks: texts of tokens that the tokenizer would leave out, by number.
    """

    def __init__(
        self, tokenizer: Tokenizer, silent: Collection[int] = (), marks: Mapping[int, str] | None = None
    ) -> None:
        self._decode = tokenizer.decode
        self._silent = silent
        self._marks = marks or {}
        # Tokens are decoded after those before them: the first word of a text has no space before it.
        self._before: list[int] = []
        self._before_text = ""
        self._held: list[int] = []

    def add(self, tokens: Sequence[int]) -> str:
        """The characters that these tokens complete."""
        return "".join([self._add(token) for token in tokens if token not in self._silent])

    def _add(self, token: int) -> str:
        if token in self._marks:
            text, self._held = self.end(), []
            return text + self._marks[token]
        self._held.append(token)
        text = self._decode(self._before + self._held)
        if text.endswith(_REPLACEMENT) and len(self._held) < _MOST_HELD:
            return ""
        return self._leave(text)

    def end(self) -> str:
        """The remaining text, valid UTF-8 even if the last character is incomplete."""
        return self._leave(self._decode(self._before + self._held)) if self._held else ""

    def _leave(self, text: str) -> str:
        # Otherwise these tokens changed the text of those before them, which has left.
        goes_on = text.startswith(self._before_text)
        added = text[len(self._before_text) :] if goes_on else self._decode(self._held)
        if added:
            self._before, self._held = self._held[-_CONTEXT:], []
            self._before_text = self._decode(self._before)
        elif len(self._held) >= _MOST_HELD:  # tokens without any text, such as special ones
            self._held = []
        return added


class StopStrings:
    """Passes text on up to the first stop string; text that may be the beginning of one waits.

    Args:
        strings: the stop strings, none of them empty.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._held = ""
        self.is_complete = False

    def add(self, text: str) -> str:
        """The text that may leave now; `is_complete` says whether a stop string is complete."""
        if not self._strings:
            return text
        if self.is_complete or not text:
            return ""
        text = self._held + text
        # The string that is complete first, regardless of how the text was cut; then the longer one.
        ends = [(at + len(stop), at) for stop in self._strings if (at := text.find(stop)) >= 0]
        if ends:
            self.is_complete = True
            self._held = ""
            return text[: min(ends)[1]]
        keep = len(text) - max(_beginning(text, stop) for stop in self._strings)
        self._held = text[keep:]
        return text[:keep]

    def end(self) -> str:
        """The waiting text, when no more text comes."""
        text, self._held = self._held, ""
        return text


def _beginning(text: str, stop: str) -> int:
    """Length of the longest beginning of `stop` with which `text` ends, `stop` itself excluded."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class AnswerText:
    """The text of one answer: characters from tokens, up to a stop string.

    Args:
        tokenizer: object that decodes tokens.
        silent: tokens without text.
        stop: strings before the first of which the text ends.
        marks: see `Characters`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        silent: Collection[int] = (),
        stop: Sequence[str] = (),
        marks: Mapping[int, str] | None = None,
    ) -> None:
        self._characters = Characters(tokenizer, silent, marks)
        self._stop = StopStrings(stop)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._stop.is_complete

    def add(self, tokens: Sequence[int]) -> str:
        """The text that these tokens add."""
        return self._stop.add(self._characters.add(tokens))

    def end(self) -> str:
        """The remaining text, when no more tokens come."""
        rest = self._stop.add(self._characters.end())
        return rest if self.stopped else rest + self._stop.end()
