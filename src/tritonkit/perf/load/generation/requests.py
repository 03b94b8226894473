"""The requests of a run: lengths drawn or recorded, cut to the model's window, and the start of each text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import UsageError
from tritonkit.perf.load.generation.lengths import Counts, Lengths, Trace
from tritonkit.perf.load.generation.prompts import Corpus, Fit

__all__ = ["TextRequests", "TextTraffic", "requests_of"]

_SPARE = 4
"""Tokens of the window that stay free, in case the tokenizer splits the text differently."""
_DOUBT = 2.0
"""A long prompt may be off by this many times the largest error of the fit."""


@dataclass(frozen=True)
class TextTraffic:
    """The traffic to a language model.

    Args:
        prompt, output: tokens of prompts and of answers.
        shared_prefix: tokens in front of every prompt, always the same ones.
        trace: recorded lengths instead of `prompt` and `output`, in their order, round and round.
    """

    prompt: Lengths
    output: Lengths
    shared_prefix: int = 0
    trace: Trace | None = None


@dataclass(frozen=True)
class TextRequests:
    """Requests in the order in which they are sent.

    Args:
        start, words: int64 [n], where in the corpus the text begins, and how many words it has.
        prefix: the same two of the words before each text; none if there are 0.
        prompt: int64 [n], tokens that the whole prompt should have, about.
        output: int64 [n], tokens that the answer must have.
        clipped: bool [n], those that were longer than the window has room for, and were shortened.
    """

    start: Counts
    words: Counts
    prefix: tuple[int, int]
    prompt: Counts
    output: Counts
    clipped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)

    def text(self, corpus: Corpus, index: int) -> str:
        """The prompt of one."""
        own = corpus.take(int(self.start[index]), int(self.words[index]))
        return f"{corpus.take(*self.prefix)} {own}" if self.prefix[1] else own


def requests_of(traffic: TextTraffic, count: int, seed: int, corpus: Corpus, worth: Fit, window: int) -> TextRequests:
    """Draw requests; the same seed gives the same ones.

    Texts begin at different words while there are enough, so that no prefix cache knows them.

    Raises:
        UsageError: the shared prefix leaves no room in the window.
    """
    room = window - _SPARE
    fixed = math.ceil(traffic.shared_prefix * (1 + _DOUBT * worth.error))
    if traffic.shared_prefix and fixed > room - 2 * _SPARE:
        raise UsageError(
            "--shared-prefix",
            found=f"{traffic.shared_prefix} tokens",
            wanted=f"fewer, as prompt and answer together have {window} tokens at most",
        )
    if traffic.trace is None:
        prompt = traffic.prompt.draw(count, 4 * seed)
        output = traffic.output.draw(count, 4 * seed + 1)
    else:
        places = np.arange(count) % len(traffic.trace.prompt)
        prompt, output = traffic.trace.prompt[places], traffic.trace.output[places]
    prompt, output, clipped = _clipped(prompt, output, room - fixed, worth.error)
    rng = np.random.default_rng(4 * seed + 2)
    size = len(corpus.words)
    start = rng.permutation(size)[np.arange(count) % size]
    words, prefix = worth.words(start, prompt), (0, 0)
    if traffic.shared_prefix:
        first = rng.integers(size, size=1)
        tokens = np.array([traffic.shared_prefix])
        prefix = int(first[0]), int(worth.words(first, tokens)[0])
    return TextRequests(start, words, prefix, prompt + traffic.shared_prefix, output, clipped)


def _clipped(prompt: Counts, output: Counts, room: int, error: float) -> tuple[Counts, Counts, NDArray[np.bool_]]:
    """Prompt and answer lengths, shortened by the same factor where both are too long together, and a mask of these."""
    tokens = prompt * (1 + _DOUBT * error) + output
    share = np.minimum(room / tokens, 1.0)
    shorter = [np.maximum((lengths * share).astype(np.int64), 1) for lengths in (prompt, output)]
    return shorter[0], shorter[1], share < 1
