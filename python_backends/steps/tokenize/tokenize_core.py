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
USUAL_STRIDE = 128
"""Tokens that windows share by default, at most half of a window, as in transformers' question answering."""
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
    windows: bool = False
    stride: int = -1
    max_windows: int = 16

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
        self._check_windows()

    def _check_windows(self) -> None:
        if not self.windows:
            if self.stride >= 0:
                raise ValueError(f"parameter stride: found {self.stride} without windows, wanted windows: true")
            return
        if self.stride < -1:
            raise ValueError(f"parameter stride: found {self.stride}, wanted at least 0")
        if self.max_windows < 1:
            raise ValueError(f"parameter max_windows: found {self.max_windows}, wanted at least 1")
        if self.pair and self.truncation == "longest_first":
            raise ValueError(
                "parameter truncation: found 'longest_first' with windows of a pair, wanted only_second or only_first,"
                " the text that is read in windows"
            )
        if self.prefix and self.truncation != "only_second":
            raise ValueError(
                "parameter prefix: found one with windows of 'text', where it would stand in the first window alone;"
                " wanted none"
            )

    @property
    def overlap(self) -> int:
        """`stride` with its default."""
        return self.stride if self.stride >= 0 else min(self.max_length // 2, USUAL_STRIDE)

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
        if settings.windows and settings.overlap >= settings.max_length - special:
            raise ValueError(
                f"parameter stride: found {settings.overlap}, wanted less than the {settings.max_length - special}"
                " tokens of a window"
            )
        self._settings = settings
        self._lengths = settings.lengths()
        self._pad_id = _pad_id(self._tokenizer)
        self._tokenizer.no_padding()
        self._truncate()
        # The fast one leaves out what only offsets need.
        self._batch = self._tokenizer.encode_batch if settings.offsets else self._tokenizer.encode_batch_fast

    def _truncate(self) -> None:
        settings = self._settings
        self._tokenizer.enable_truncation(
            settings.max_length,
            stride=settings.overlap if settings.windows else 0,
            strategy=settings.truncation,
            direction=settings.truncation_side,
        )

    def windows(self, text: Text) -> list[Encoding]:
        """The windows of one text, or of one pair, of whose texts one is in every window; at least one window.

        Raises:
            ValueError: there would be more windows than `max_windows`, or the other text leaves too little room.
        """
        # Windows are made only once their number is known: each takes the memory of `max_length` tokens.
        self._tokenizer.no_truncation()
        try:
            [whole] = self.encode([text])
        finally:
            self._truncate()
        if len(whole) <= self._settings.max_length:
            return [whole]
        self._check_number(whole)
        [first] = self.encode([text])
        return [first, *first.overflowing]

    def _check_number(self, whole: Encoding) -> None:
        settings = self._settings
        cut = whole.sequence_ids.count(1 if settings.truncation == "only_second" else 0)
        room = settings.max_length - (len(whole) - cut)
        if room <= settings.overlap:
            other = "text" if settings.truncation == "only_second" else "text_pair"
            raise ValueError(
                f"item 0: '{other}' and special tokens leave room for {max(room, 0)} tokens in a window of"
                f" {settings.max_length}; wanted more than the {settings.overlap} that windows share (parameter stride)"
            )
        number = 1 + -((room - cut) // (room - settings.overlap))
        if number > settings.max_windows:
            raise ValueError(
                f"item 0: found {cut} tokens, which take {number} windows of {room}; wanted at most"
                f" {settings.max_windows} (parameter max_windows)"
            )

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
