"""A sender's record of a run, as arrays in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.generation.lengths import Counts

__all__ = ["GenerationRecord", "StreamedAnswer", "load_record", "record_of", "save_record"]


@dataclass
class StreamedAnswer:
    """One request in flight, and its result.

    Args:
        index: its number among the run's requests.
        due, sent: seconds since the start of the run.
        pieces: seconds at which each reply with tokens came.
        counts: the number of tokens in each of these.
        tokens: all tokens of the answer.
        words: the fault; empty for a right answer. None: its end was not awaited.
        again: whether it was sent after the run, to compare its tokens with those of an earlier one.
    """

    index: int
    due: float
    sent: float
    pieces: list[float]
    counts: list[int]
    tokens: list[int]
    ended: float = float("nan")
    prompt_tokens: int = 0
    words: str | None = None
    again: bool = False


@dataclass(frozen=True)
class GenerationRecord:
    """A run's requests, in the order in which they were sent.

    Args:
        index: int64 [n], the number of each among the requests.
        due, sent, ended: float64 [n], seconds since the start; the end is NaN if it was not awaited.
        prompt_tokens: int64 [n], as the server counted; 0 if it did not say.
        outcome: int32 [n]: 0 a right answer, k the failure `failures[k - 1]`, -1 no end.
        again: bool [n], of those that were sent after the run to compare their tokens.
        pieces: float64 [m], when each reply with tokens came, one request after the other. counts: their tokens.
        tokens: int64 [t], of all answers.
        piece_ends, token_ends: int64 [n], where those of each request end.
        failures: messages.
        cpu_s: processor time of the sender.
        ended_early: the reason, if it did.
        start: the start of the run on the monotonic clock.
    """

    index: Counts
    due: NDArray[np.float64]
    sent: NDArray[np.float64]
    ended: NDArray[np.float64]
    prompt_tokens: Counts
    outcome: NDArray[np.int32]
    again: NDArray[np.bool_]
    pieces: NDArray[np.float64]
    counts: Counts
    tokens: Counts
    piece_ends: Counts
    token_ends: Counts
    failures: tuple[str, ...]
    cpu_s: float
    ended_early: str = ""
    start: float = 0.0

    def tokens_of(self, place: int) -> Counts:
        """The tokens of one answer."""
        first = self.token_ends[place - 1] if place else 0
        return self.tokens[first : self.token_ends[place]]


def record_of(
    answers: Sequence[StreamedAnswer], cpu_s: float, ended_early: str, start: float = 0.0
) -> GenerationRecord:
    """All answers of a run as arrays."""
    words: dict[str, int] = {}
    outcome = [
        -1 if answer.words is None else words.setdefault(answer.words, len(words)) + 1 if answer.words else 0
        for answer in answers
    ]
    return GenerationRecord(
        np.array([answer.index for answer in answers], np.int64),
        np.array([answer.due for answer in answers], np.float64),
        np.array([answer.sent for answer in answers], np.float64),
        np.array([answer.ended for answer in answers], np.float64),
        np.array([answer.prompt_tokens for answer in answers], np.int64),
        np.array(outcome, np.int32),
        np.array([answer.again for answer in answers], np.bool_),
        np.array([at for answer in answers for at in answer.pieces], np.float64),
        np.array([count for answer in answers for count in answer.counts], np.int64),
        np.array([token for answer in answers for token in answer.tokens], np.int64),
        np.cumsum([len(answer.pieces) for answer in answers], dtype=np.int64),
        np.cumsum([len(answer.tokens) for answer in answers], dtype=np.int64),
        tuple(words),
        cpu_s,
        ended_early,
        start,
    )


_FACTS = ("failures", "cpu_s", "ended_early", "start")


def save_record(record: GenerationRecord, file: Path) -> None:
    """Write it to a numpy file."""
    facts = {name: getattr(record, name) for name in _FACTS}
    arrays = {name: array for name, array in vars(record).items() if name not in facts}
    np.savez(file, facts=np.array(json.dumps(facts)), **arrays)


def load_record(file: Path) -> GenerationRecord:
    """Read what `save_record` has written."""
    with np.load(file, allow_pickle=False) as saved:
        facts = json.loads(str(saved["facts"]))
        facts["failures"] = tuple(facts["failures"])
        return GenerationRecord(**{name: saved[name] for name in saved.files if name != "facts"}, **facts)
