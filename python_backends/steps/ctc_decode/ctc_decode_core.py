"""Decode the output of CTC networks: repeated tokens are one, blanks separate them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import nlargest
from math import log
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctc_decode_vocabulary import Vocabulary

LEAST = -12.0  # the search skips tokens less likely than this, relative to the best of their frame, in nats
ROUNDED = 1e-3  # a probability may be that much above 1
SMALLEST = 1e-37  # probabilities below, and zeros, count as this one
LENGTHS = ("all", "frames", "samples", "attention_mask")
SCORES = ("path", "mean")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    blank: str = ""
    word_delimiter: str = "|"
    skip_special: bool = True
    lowercase: bool = False
    probabilities: bool = False
    beam: int = 1
    scores: str = "path"
    length: str = "all"
    stride: int = 320
    field: int = 400
    max_prefixes: int = 1 << 20

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.length not in LENGTHS:
            raise ValueError(f"parameter length: found '{self.length}', wanted one of {', '.join(LENGTHS)}")
        if self.scores not in SCORES:
            raise ValueError(f"parameter scores: found '{self.scores}', wanted one of {', '.join(SCORES)}")
        if self.scores == "mean" and self.beam > 1:
            raise ValueError(
                f"parameter scores: found 'mean' with a beam of {self.beam}, wanted a beam of 1, or 'path'"
            )
        for name in ("beam", "stride", "field", "max_prefixes"):
            if getattr(self, name) < 1:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted at least 1")

    def frames_of(self, samples: int) -> int:
        """The frames that a network makes of a waveform, whose convolutions are not padded."""
        return max(0, (samples - self.field) // self.stride + 1)


def decode(
    logits: np.ndarray, frames: Sequence[int], vocabulary: Vocabulary, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """The text of each item, and its log-probability: of the best path, or with a beam of the text; or the mean
    probability of its tokens, 0 without any.

    Args:
        logits: float32 [batch, frames, classes]: logits or log-probabilities; probabilities if the settings say so.
        frames: how many frames of each item count; more than there are count as all.
        vocabulary: the tokens of the classes.
        settings: the step's parameters.

    Returns:
        texts: object [batch, 1] of bytes; scores: float32 [batch, 1].

    Raises:
        ValueError: the classes are not those of the vocabulary, a frame has no largest logit, or an item has too many
            frames for its beam; says which.
    """
    if logits.shape[-1] != vocabulary.size:
        raise ValueError(f"found {logits.shape[-1]} classes, wanted {vocabulary.size}, one for each token")
    texts = np.empty((len(logits), 1), dtype=object)
    scores = np.zeros((len(logits), 1), dtype=np.float32)
    for item, (rows, count) in enumerate(zip(logits, frames, strict=True)):
        rows = rows[: max(0, count)]
        if settings.beam > 1 and len(rows) * settings.beam > settings.max_prefixes:
            raise ValueError(
                f"item {item}: {len(rows)} frames with a beam of {settings.beam} may take {len(rows) * settings.beam}"
                f" prefixes; at most {settings.max_prefixes} are taken (parameter max_prefixes)"
            )
        if settings.probabilities:
            _check_probabilities(rows, item)
        if settings.beam > 1:
            likely = _logarithms(rows) if settings.probabilities else _log_softmax(rows, item)
            ids, scores[item, 0] = _best_text(likely, vocabulary.blank, settings.beam)
        else:
            ids, scores[item, 0] = _best_path(rows, item, vocabulary.blank, settings)
        text = vocabulary.text(ids)
        texts[item, 0] = (text.lower() if settings.lowercase else text).encode()
    return texts, scores


def _log_softmax(rows: np.ndarray, item: int) -> np.ndarray:
    """Log-probabilities, float64 [frames, classes]."""
    rows = rows.astype(np.float64)
    best = rows.max(axis=1, keepdims=True, initial=-np.inf)
    if not np.isfinite(best).all():
        frame = int(np.argmin(np.isfinite(best[:, 0])))
        raise ValueError(f"item {item}, frame {frame}: the largest logit is {best[frame, 0]}, wanted a finite number")
    rows -= best
    logarithms: np.ndarray = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return logarithms


def _check_probabilities(rows: np.ndarray, item: int) -> None:
    if rows.size and not (rows.min() >= 0 and rows.max() <= 1 + ROUNDED):  # not so with NaN either
        frame, token = np.argwhere(~((rows >= 0) & (rows <= 1 + ROUNDED)))[0]
        raise ValueError(f"item {item}, frame {frame}: found {rows[frame, token]}, wanted a probability, 0 to 1")


def _logarithms(rows: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities, float64 of the same shape."""
    logarithms: np.ndarray = np.log(np.clip(rows.astype(np.float64), SMALLEST, 1))
    return logarithms


def _best_path(rows: np.ndarray, item: int, blank: int, settings: Settings) -> tuple[list[int], float]:
    """The ids of the most likely token of each frame, and the score: one logarithm for each frame is all it needs."""
    path = rows.argmax(axis=1)
    if settings.probabilities:
        likely = _logarithms(rows[np.arange(len(rows)), path])
    else:
        likely = _log_softmax(rows, item).max(axis=1)
    kept = (path != blank) & (np.diff(path, prepend=-1) != 0)
    if settings.scores == "path":
        return path[kept].tolist(), float(likely.sum())
    return path[kept].tolist(), float(np.exp(likely[kept]).mean()) if kept.any() else 0.0


_End = int | tuple[int, int]
"""A prefix by its number, or one that has none yet: a prefix and one more token."""


class _Prefixes:
    """Beginnings of texts as a tree: each is a number, and 0 is empty."""

    def __init__(self) -> None:
        self.last = [-1]
        self._before = [-1]
        self._numbers: dict[tuple[int, int], int] = {}

    def end(self, prefix: int, token: int) -> _End:
        """The prefix with one more token, by its number if it has one."""
        end = prefix, token
        return self._numbers.get(end, end)

    def number(self, end: _End) -> int:
        """The number of a prefix; a new one if it has none."""
        if isinstance(end, int):
            return end
        prefix, token = end
        number = self._numbers[end] = len(self.last)
        self.last.append(token)
        self._before.append(prefix)
        return number

    def ids(self, prefix: int) -> list[int]:
        """The tokens of a prefix."""
        tokens = []
        while prefix:
            tokens.append(self.last[prefix])
            prefix = self._before[prefix]
        return tokens[::-1]


def _best_text(likely: np.ndarray, blank: int, beam: int) -> tuple[list[int], float]:
    """The ids of the most likely text over all its paths, and its probability (prefix beam search)."""
    prefixes = _Prefixes()
    alive = [(0, 1.0, 0.0)]  # prefix, and the chances of its paths that end in a blank and in its last token
    score = 0.0  # logarithm of the best prefix's chance, by which those of all are divided
    for row in likely:
        tokens = np.argpartition(-row, min(beam, len(row) - 1))[: beam + 1]
        tokens = tokens[row[tokens] >= row[tokens].max() + LEAST]
        chances = dict(zip(tokens.tolist(), np.exp(row[tokens]).tolist(), strict=True))
        ends = _next(alive, chances, blank, prefixes)
        best = nlargest(beam, ends.items(), key=lambda entry: sum(entry[1]))
        total = sum(best[0][1])
        score += log(total)
        # Only the prefixes that stay get a number: the others are many times as many.
        alive = [(prefixes.number(end), in_blank / total, in_token / total) for end, (in_blank, in_token) in best]
    return prefixes.ids(alive[0][0]), score


def _next(
    alive: list[tuple[int, float, float]], chances: dict[int, float], blank: int, prefixes: _Prefixes
) -> dict[_End, list[float]]:
    """The prefixes after one more frame, with the chances of their two kinds of paths."""
    ends: dict[_End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for prefix, in_blank, in_token in alive:
        last = prefixes.last[prefix]
        for token, chance in chances.items():
            if token == blank:
                ends[prefix][0] += (in_blank + in_token) * chance
            elif token != last:
                ends[prefixes.end(prefix, token)][1] += (in_blank + in_token) * chance
            else:
                ends[prefix][1] += in_token * chance
                if in_blank:  # a repeated token has a blank between
                    ends[prefixes.end(prefix, token)][1] += in_blank * chance
    return ends
