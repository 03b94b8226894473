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
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokenizers import Encoding

MOST_CHARACTERS = 1 << 18  # of texts that are encoded together
TRUNCATIONS = ("longest_first", "only_first", "only_second")
SIDES = ("right", "left")
PAD_TOKENS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")


Text = str | tuple[str, str]
"""A text, or a pair of texts."""


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    max_length: int = 256
    buckets: tuple[int, ...] = (16, 32, 64, 128, 256)
    max_bytes: int = 256 * 1024
    pair: bool = False
    prefix: str = ""
    truncation: str = "longest_first"
    truncation_side: str = "right"
    token_type_ids: bool = False
    offsets: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.max_length < 1:
            raise ValueError(f"parameter max_length: found {self.max_length}, wanted at least 1")
        if self.max_bytes < 1:
            raise ValueError(f"parameter max_bytes: found {self.max_bytes}, wanted at least 1")
        if any(bucket < 1 for bucket in self.buckets):
            raise ValueError(f"parameter buckets: found {self.buckets}, wanted lengths above 0")
        if self.truncation not in TRUNCATIONS:
            raise ValueError(f"parameter truncation: found '{self.truncation}', wanted one of {', '.join(TRUNCATIONS)}")
        if self.truncation == "only_second" and not self.pair:
            raise ValueError("parameter truncation: found 'only_second' without a second text, wanted pair: true")
        if self.truncation_side not in SIDES:
            raise ValueError(f"parameter truncation_side: found '{self.truncation_side}', wanted right or left")

    def lengths(self) -> tuple[int, ...]:
        """The lengths a batch may have, ascending; the last is always `max_length`."""
        shorter = {bucket for bucket in self.buckets if bucket < self.max_length}
        return (*sorted(shorter), self.max_length)


class TextTokenizer:
    """A `tokenizer.json` with our own truncation and padding in place of the file's."""

    def __init__(self, path: Path, settings: Settings) -> None:
        """Raises ValueError if the file is not a tokenizer or adds more tokens than fit."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{path}: not a HuggingFace tokenizer.json: {error}") from error
        special = self._tokenizer.num_special_tokens_to_add(settings.pair)
        if settings.max_length <= special:
            raise ValueError(
                f"parameter max_length: found {settings.max_length}, wanted more than the"
                f" {special} special tokens of {path.name}"
            )
        if settings.pair and not special and self._tokenizer.num_special_tokens_to_add(False):
            raise ValueError(
                f"parameter pair: {path.name} says nothing of pairs; wanted a post_processor that joins two"
            )
        self._settings = settings
        self._lengths = settings.lengths()
        self._pad_id = _pad_id(self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(
            settings.max_length, strategy=settings.truncation, direction=settings.truncation_side
        )
        # The fast one leaves out what only offsets need.
        self._batch = self._tokenizer.encode_batch if settings.offsets else self._tokenizer.encode_batch_fast

    def encode(self, texts: Sequence[Text]) -> list[Encoding]:
        """The tokens of each text, special ones included, at most `max_length` of them.

        Raises:
            ValueError: the library refuses a text, or what may be cut is too short; says which item.
        """
        prefix = self._settings.prefix
        if prefix:
            texts = [prefix + text if isinstance(text, str) else (prefix + text[0], text[1]) for text in texts]
        rows: list[Encoding] = []
        for group in _groups(texts):
            rows += self._encode(group, len(rows))
        return rows

    def _encode(self, group: list[Text], first: int) -> list[Encoding]:
        try:
            rows: list[Encoding] = self._batch(group)
            return rows
        except BaseException as error:  # the library's panics are not instances of Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            if len(group) == 1:
                raise ValueError(f"item {first}: {self._refusal(error)}") from None
        return [row for index, text in enumerate(group, first) for row in self._encode([text], index)]

    def _refusal(self, error: BaseException) -> str:
        message = f"the tokenizer refuses it: {error}"
        if not self._settings.pair:
            return message
        return (
            f"{message} (a pair has at most {self._settings.max_length} tokens, parameter max_length; truncation is"
            f" {self._settings.truncation})"
        )

    def pad(self, rows: Sequence[Encoding]) -> dict[str, np.ndarray]:
        """The step's outputs [batch, length, ...], in the smallest bucket that holds all rows."""
        many = [row.ids for row in rows]
        longest = max(map(len, many), default=0)
        length = next(bucket for bucket in self._lengths if bucket >= longest)
        ids = np.full((len(rows), length), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for index, row in enumerate(many):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        outputs = {"input_ids": ids, "attention_mask": mask}
        if self._settings.token_type_ids:
            types = outputs["token_type_ids"] = np.zeros((len(rows), length), dtype=np.int64)
            for index, encoding in enumerate(rows):
                types[index, : len(encoding)] = encoding.type_ids
        return {**outputs, **self._places(rows, length)} if self._settings.offsets else outputs

    def _places(self, rows: Sequence[Encoding], length: int) -> dict[str, np.ndarray]:
        """Characters, text and word of each token; tokens of `prefix` belong to no text, as special tokens do."""
        offsets = np.zeros((len(rows), length, 2), dtype=np.int32)
        texts = np.full((len(rows), length), -1, dtype=np.int32)
        words = np.full((len(rows), length), -1, dtype=np.int32)
        for index, row in enumerate(rows):
            offsets[index, : len(row)] = row.offsets
            texts[index, : len(row)] = [-1 if text is None else text for text in row.sequence_ids]
            words[index, : len(row)] = [-1 if word is None else word for word in row.word_ids]
        if self._settings.prefix:
            first = texts == 0
            offsets[first] = np.maximum(offsets[first] - len(self._settings.prefix), 0)
            before = first & (offsets[:, :, 1] == 0)
            texts[before] = words[before] = -1
        return {"offsets": offsets, "sequence_ids": texts, "word_ids": words}


def _groups(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """The texts in order, in small groups: the library takes up to 450 bytes per character, and keeps them until a
    whole group is done."""
    group: list[Text] = []
    size = 0
    for text in texts:
        length = len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        if group and size + length > MOST_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(text)
        size += length
    if group:
        yield group


def _pad_id(tokenizer: Tokenizer) -> int:
    """The file's own padding id, else that of a usual padding token, else 0."""
    if tokenizer.padding:
        own: int = tokenizer.padding["pad_id"]
        return own
    ids = (tokenizer.token_to_id(token) for token in PAD_TOKENS)
    return next((number for number in ids if number is not None), 0)
