"""The text that each token adds to an answer, as bytes, which the engine needs to hold an answer to a grammar.

Only some tokenizers have such a text: those of bytes (GPT-2's kind), and those of pieces with a mark for spaces
(Llama's). Others, such as those of whole words, write spaces by the neighbors of a token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenizers import Tokenizer

MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
"""Tokens around calls of tools, which are texts here even where a tokenizer counts them as special."""
_SPACE = "▁"
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_SAMPLE = '{"name": "é ☃", "list": [1, -2.5e3, true, null]}\nText, and "more"\\n'


def marks_of(tokenizer: Tokenizer) -> dict[int, str]:
    """The marks that are one token each, by number."""
    numbers = {tokenizer.token_to_id(mark): mark for mark in MARKS}
    return {number: mark for number, mark in numbers.items() if number is not None}


def pieces_of(tokenizer: Tokenizer, facts: Mapping[str, Any], vocabulary: int) -> list[bytes] | None:
    """The bytes of each token of the network's vocabulary, none for those that no answer shows.

    Args:
        tokenizer: the tokenizer.
        facts: its file, tokenizer.json.
        vocabulary: the number of tokens that the network knows.

    Returns:
        None if the tokens of this tokenizer are not pieces of text.
    """
    kinds = {step.get("type") for step in _steps(facts.get("decoder"))}
    by_byte = "ByteLevel" in kinds
    if not by_byte and not kinds & {"Metaspace", "Replace"}:
        return None
    letters = _letters() if by_byte else {}
    pieces = [b""] * vocabulary
    for name, number in tokenizer.get_vocab(with_added_tokens=False).items():
        if number < vocabulary:
            pieces[number] = _bytes_of_letters(name, letters) if by_byte else _bytes_of_piece(name)
    marks = marks_of(tokenizer)
    for number, added in tokenizer.get_added_tokens_decoder().items():
        if number < vocabulary:
            shown = number in marks or not added.special
            pieces[number] = added.content.encode() if shown else b""
    return pieces if _fits(tokenizer, pieces) else None


def _fits(tokenizer: Tokenizer, pieces: list[bytes]) -> bool:
    """Whether the pieces of a text's tokens are that text."""
    numbers = tokenizer.encode(_SAMPLE, add_special_tokens=False).ids
    if max(numbers, default=len(pieces)) >= len(pieces):
        return False
    return b"".join(pieces[number] for number in numbers).removeprefix(b" ") == _SAMPLE.encode()


def _steps(decoder: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(decoder, dict):
        yield decoder
        for step in decoder.get("decoders") or ():
            yield from _steps(step)


def _letters() -> dict[str, int]:
    """The letters that stand for bytes in byte-level tokenizers: printable bytes are themselves, others come after."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


def _bytes_of_letters(name: str, letters: Mapping[str, int]) -> bytes:
    return bytes(letters[letter] for letter in name) if all(letter in letters for letter in name) else b""


def _bytes_of_piece(name: str) -> bytes:
    if match := _BYTE.fullmatch(name):
        return bytes([int(match[1], 16)])
    return name.replace(_SPACE, " ").encode()
