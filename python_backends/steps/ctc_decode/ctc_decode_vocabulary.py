"""Vocabularies of CTC networks: tokens and how they become text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLANKS = ("<pad>", "[PAD]", "<blank>", "<blk>", "<eps>")
_SPECIAL = re.compile(r"<.+>|\[.+\]")


@dataclass(frozen=True)
class Vocabulary:
    """The number of tokens, the id of the blank, and the function from ids (no repeats, no blanks) to text."""

    size: int
    blank: int
    text: Callable[[Sequence[int]], str]


def read_vocabulary(path: Path, blank: str, word_delimiter: str, skip_special: bool) -> Vocabulary:
    """The vocabulary of a file: vocab.json, tokenizer.json, or text with a token in each line.

    Raises:
        ValueError: it is none of these, two tokens have one number, a number has no token, or there is no blank.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    try:
        content = json.loads(text) if text.lstrip()[:1] == "{" else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if content is None:
        ids = _lines(text, path)
    elif isinstance(content.get("model"), dict):
        return _of_tokenizer(path, blank, skip_special)
    else:
        ids = _entries(content, path)
    tokens = _in_order(ids, path)

    def joined(numbers: Sequence[int]) -> str:
        kept = (tokens[number] for number in numbers)
        words = (token for token in kept if not (skip_special and _SPECIAL.fullmatch(token)))
        return "".join(token.replace(word_delimiter, " ") if word_delimiter else token for token in words).strip()

    return Vocabulary(len(tokens), _blank(ids, blank, path), joined)


def _of_tokenizer(path: Path, blank: str, skip_special: bool) -> Vocabulary:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path}: not a HuggingFace tokenizer.json: {error}") from error
    ids = tokenizer.get_vocab(with_added_tokens=True)
    size = len(_in_order(ids, path))

    def text(numbers: Sequence[int]) -> str:
        decoded: str = tokenizer.decode(list(numbers), skip_special_tokens=skip_special)
        return decoded.strip()

    return Vocabulary(size, _blank(ids, blank, path), text)


def _lines(text: str, path: Path) -> dict[str, int]:
    """A token in each line, or a token and its number, as k2 and sherpa write it."""
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    numbered = [re.fullmatch(r"(.*?)[ \t]+(\d+)", line) for line in lines]
    if all(numbered):
        pairs = [(match[1], int(match[2])) for match in numbered if match]
    else:
        pairs = [(line, number) for number, line in enumerate(lines)]
    token, count = Counter(token for token, _ in pairs).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path}: the token {token!r} is there {count} times")
    return dict(pairs)


def _entries(content: dict[str, Any], path: Path) -> dict[str, int]:
    for token, number in content.items():
        if type(number) is not int:
            raise ValueError(f"{path}: the token {token!r} has {json.dumps(number)[:40]}, wanted its number")
    return content


def _in_order(ids: dict[str, int], path: Path) -> list[str]:
    """The tokens by number, which go from 0 without a gap."""
    tokens = sorted(ids, key=lambda token: ids[token])
    for place, token in enumerate(tokens):
        if ids[token] != place:
            raise ValueError(f"{path}: the token {token!r} has the number {ids[token]}, wanted {place}")
    return tokens


def _blank(ids: dict[str, int], blank: str, path: Path) -> int:
    names = (blank,) if blank else BLANKS
    for name in names:
        if name in ids:
            return ids[name]
    raise ValueError(f"parameter blank: {path.name} has none of {', '.join(names)}, wanted the blank token's name")
