"""Convert text to the token ids of a HuggingFace tokenizer, padded to length buckets.

Buckets: Triton merges only requests of equal shape, so texts padded to one of a few lengths can share a batch, while
padding every text to the longest possible would waste the network's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

MOST_CHARACTERS = 1 << 18  # of texts that are encoded together
PAD_TOKENS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    max_length: int = 256
    buckets: tuple[int, ...] = (16, 32, 64, 128, 256)
    max_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.max_length < 1:
            raise ValueError(f"parameter max_length: found {self.max_length}, wanted at least 1")
        if self.max_bytes < 1:
            raise ValueError(f"parameter max_bytes: found {self.max_bytes}, wanted at least 1")
        if any(bucket < 1 for bucket in self.buckets):
            raise ValueError(f"parameter buckets: found {self.buckets}, wanted lengths above 0")

    def lengths(self) -> tuple[int, ...]:
        """The lengths a batch may have, ascending; the last is always `max_length`."""
        shorter = {bucket for bucket in self.buckets if bucket < self.max_length}
        return (*sorted(shorter), self.max_length)


def decode_texts(items: Iterable[bytes], max_bytes: int) -> list[str]:
    """The items as text.

    Raises:
        ValueError: an item is longer than `max_bytes`, or not UTF-8; says which and at which byte.
    """
    texts = []
    for index, data in enumerate(items):
        if len(data) > max_bytes:
            raise ValueError(
                f"item {index}: the text has {len(data)} bytes; at most {max_bytes} are taken (parameter max_bytes)"
            )
        try:
            texts.append(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"item {index}: not valid UTF-8 at byte {error.start} ({error.reason})") from None
    return texts


class TextTokenizer:
    """A `tokenizer.json` with our own truncation and padding in place of the file's."""

    def __init__(self, path: Path, settings: Settings) -> None:
        """Raises ValueError if the file is not a tokenizer or adds more tokens than fit."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{path}: not a HuggingFace tokenizer.json: {error}") from error
        special = self._tokenizer.num_special_tokens_to_add(False)
        if settings.max_length <= special:
            raise ValueError(
                f"parameter max_length: found {settings.max_length}, wanted more than the"
                f" {special} special tokens of {path.name}"
            )
        self._lengths = settings.lengths()
        self._pad_id = _pad_id(self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(settings.max_length)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, special tokens included, at most `max_length` of them."""
        return [encoding.ids for group in _groups(texts) for encoding in self._tokenizer.encode_batch_fast(group)]

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Ids and attention mask, int64 [batch, length], in the smallest bucket that holds all."""
        longest = max((len(row) for row in rows), default=0)
        length = next(bucket for bucket in self._lengths if bucket >= longest)
        ids = np.full((len(rows), length), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        return ids, mask


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, in small groups: the library takes up to 450 bytes per character, and keeps them until a
    whole group is done."""
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > MOST_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


def _pad_id(tokenizer: Tokenizer) -> int:
    """The file's own padding id, else that of a usual padding token, else 0."""
    if tokenizer.padding:
        own: int = tokenizer.padding["pad_id"]
        return own
    ids = (tokenizer.token_to_id(token) for token in PAD_TOKENS)
    return next((number for number in ids if number is not None), 0)
