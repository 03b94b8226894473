"""Find the answer to a question in its context, as the question answering of transformers does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from step_scores import softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = 1
"""The number of the context in `sequence_ids`; the question is 0."""


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 1
    max_answer_length: int = 15
    impossible: bool = False
    align: bool = True
    windows: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.k < 1:
            raise ValueError(f"parameter k: found {self.k}, wanted at least 1")
        if self.max_answer_length < 1:
            raise ValueError(f"parameter max_answer_length: found {self.max_answer_length}, wanted at least 1")


class Answer(NamedTuple):
    """Characters start to stop of a context."""

    text: str
    score: float
    start: int
    stop: int


class Places(NamedTuple):
    """The places of the tokens of one question and its context: offsets [tokens, 2], the others [tokens], int32."""

    offsets: np.ndarray
    sequence_ids: np.ndarray
    word_ids: np.ndarray


def check_span_logits(logits: np.ndarray, sequence_ids: np.ndarray) -> None:
    """Refuse logits [batch, tokens] that may count for an answer and are not finite; names item and token."""
    unfit = ~np.isfinite(logits) & _readable(sequence_ids)
    if unfit.any():
        item, token = (int(index) for index in np.argwhere(unfit)[0])
        raise ValueError(f"item {item}, token {token}: found {logits[item, token]}, wanted a finite number")


def answers(start: np.ndarray, end: np.ndarray, places: Places, context: str, settings: Settings) -> list[Answer]:
    """The best answers, at most k, best first.

    Args:
        start: float32 [tokens], logits of the first token of an answer.
        end: float32 [tokens], those of its last token.
        places: the tokens' places.
        context: the text that has the answer.
        settings: the step's.
    """
    return answers_of_windows([(start, end, places)], context, settings)


def answers_of_windows(
    windows: Sequence[tuple[np.ndarray, np.ndarray, Places]], context: str, settings: Settings
) -> list[Answer]:
    """The same for a context that was read in windows, each with what `answers` takes.

    As in transformers, each window has its own probabilities: the scores of an answer that several windows have are
    added up, and the lowest of the empty answer's scores is its score.
    """
    joined: dict[str, Answer] = {}
    none = 1.0
    for start, end, places in windows:
        readable = _readable(places.sequence_ids)
        tokens = np.flatnonzero(places.sequence_ids == CONTEXT)
        starts, ends = _probabilities(start, readable), _probabilities(end, readable)
        for first, last, score in _candidates(starts, ends, tokens, settings):
            begin, stop = _characters(first, last, places, settings.align)
            text = context[begin:stop]
            earlier = joined.get(text.lower())
            # An answer that stands in several places counts once, with the sum of their scores.
            joined[text.lower()] = (
                earlier._replace(score=earlier.score + score) if earlier else Answer(text, score, begin, stop)
            )
        special = len(starts) and places.sequence_ids[0] == -1
        none = min(none, float(starts[0] * ends[0]) if special else 0.0)
    best = list(joined.values())
    if settings.impossible:
        best.append(Answer("", none, 0, 0))
    return sorted(best, key=lambda answer: -answer.score)[: settings.k]


def _readable(sequence_ids: np.ndarray) -> np.ndarray:
    """Tokens that share the probability of an answer: the context's, and a special first one, which says that there is
    no answer."""
    readable = np.asarray(sequence_ids == CONTEXT)
    readable[..., :1] |= sequence_ids[..., :1] == -1
    return readable


def _probabilities(logits: np.ndarray, readable: np.ndarray) -> np.ndarray:
    if not readable.any():
        return np.zeros_like(logits)
    return softmax(np.where(readable, logits, -np.inf).astype(np.float32))


def _candidates(
    starts: np.ndarray, ends: np.ndarray, tokens: np.ndarray, settings: Settings
) -> list[tuple[int, int, float]]:
    """First token, last token and score of the likeliest answers, best first. More than k, because whole words join
    some."""
    if not len(tokens):
        return []
    low, high = int(tokens[0]), int(tokens[-1]) + 1
    inside = np.zeros(high - low, bool)
    inside[tokens - low] = True
    width = min(settings.max_answer_length, high - low)
    ends = np.concatenate([np.where(inside, ends[low:high], 0), np.zeros(width - 1, np.float32)])
    # Row: the first token; column: how many tokens follow it.
    windows = np.lib.stride_tricks.sliding_window_view(ends, width)
    scores = (np.where(inside, starts[low:high], 0)[:, None] * windows).ravel()
    number = 2 * settings.k + 10 if settings.align else settings.k
    best = np.argpartition(-scores, number)[:number] if number < len(scores) else np.arange(len(scores))
    best = best[np.lexsort((best, -scores[best]))]
    places = [(low + index // width, low + index // width + index % width) for index in best.tolist()]
    return [(*place, score) for place, score in zip(places, scores[best].tolist(), strict=True) if score > 0]


def _characters(first: int, last: int, places: Places, align: bool) -> tuple[int, int]:
    """First character of an answer, and the one after its last."""
    if align:
        words = places.word_ids
        while first > 0 and _same_word(first - 1, first, words, places.sequence_ids):
            first -= 1
        while last + 1 < len(words) and _same_word(last, last + 1, words, places.sequence_ids):
            last += 1
    return int(places.offsets[first, 0]), int(places.offsets[last, 1])


def _same_word(one: int, other: int, words: np.ndarray, sequence_ids: np.ndarray) -> bool:
    return bool(words[one] == words[other] >= 0 and sequence_ids[one] == sequence_ids[other])


def padded(batch: list[list[Answer]], k: int) -> dict[str, np.ndarray]:
    """The step's outputs; where fewer than k answers are possible, the rest is empty."""
    texts = np.full((len(batch), k), b"", dtype=object)
    scores, spans = np.zeros((len(batch), k), np.float32), np.zeros((len(batch), k, 2), np.int32)
    for row, best in enumerate(batch):
        for column, answer in enumerate(best):
            texts[row, column] = answer.text.encode()
            scores[row, column] = answer.score
            spans[row, column] = answer.start, answer.stop
    counts = np.array([[len(best)] for best in batch], np.int32)
    return {"answer": texts, "score": scores, "span": spans, "count": counts}
