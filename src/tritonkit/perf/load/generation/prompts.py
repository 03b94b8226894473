"""Prompts of a given number of tokens, made of real text, for a tokenizer that only the server has.

The tokens of a word are fitted to the server's counts for some texts: by least squares, from the word itself and its
numbers of letters, digits and other characters. The last reply to a prompt has its true length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.generation.lengths import Counts

__all__ = ["Corpus", "Fit", "fit"]

_WORD = re.compile(r"[(\"']?[A-Za-z][a-z]*(?:[-'][a-z]+)?[)\"']?[.,:;]?|[0-9]+")
"""A word as people write it, because tokenizers split lines of symbols in their own ways."""
_KINDS = 5
"""The number of a word's features: a constant 1, and its lower-case letters, upper-case letters, digits and others."""


class Corpus:
    """Words of Python's own documentation, in their order, without its code and tables.

    Args:
        text: another text instead.
    """

    def __init__(self, text: str | None = None) -> None:
        if text is None:
            from pydoc_data.topics import topics

            text = "\n".join(topics.values())
        self.words = [word for word in text.split() if _WORD.fullmatch(word)]
        self.features = np.array([_features(word) for word in self.words], np.float64)
        """float64 [words, kinds]."""

    def take(self, start: int, count: int) -> str:
        """Words from the one at `start` on; after the last word comes the first."""
        size = len(self.words)
        start %= size
        if start + count <= size:
            return " ".join(self.words[start : start + count])
        whole, rest = divmod(start + count - size, size)
        return " ".join(self.words[start:] + self.words * whole + self.words[:rest])

    def sums(self, start: int, count: int) -> NDArray[np.float64]:
        """The features of such a text, added up: float64 [kinds]."""
        places = (start + np.arange(count)) % len(self.words)
        total: NDArray[np.float64] = self.features[places].sum(axis=0)
        return total


class Fit:
    """The worth of words in tokens.

    Args:
        of_words: float64 [words], tokens of each word of the corpus with the space before it, all above 0.
        of_prompt: tokens of any prompt in addition to those of its words.
        error: the largest difference from the server's count for a long text, relative to that count.
    """

    def __init__(self, of_words: NDArray[np.float64], of_prompt: float, error: float) -> None:
        self.of_prompt, self.error = of_prompt, error
        self._total = float(of_words.sum())
        # The words twice, so that a text may begin anywhere.
        self._worth = np.concatenate([[0.0], np.cumsum(np.tile(of_words, 2))])
        self._size = len(of_words)

    def words(self, starts: Counts, tokens: Counts) -> Counts:
        """The number of words from each start on that comes nearest to a number of tokens; at least 1. All int64
        [n]."""
        wholes, rest = np.divmod(np.maximum(tokens - self.of_prompt, 0.0), self._total)
        at = starts % self._size
        target = self._worth[at] + rest
        after = np.searchsorted(self._worth, target)
        before = np.maximum(after - 1, at)
        nearer = target - self._worth[before] < self._worth[after] - target
        count = np.where(nearer, before, after) - at + wholes.astype(np.int64) * self._size
        words: Counts = np.maximum(count, 1)
        return words


def fit(corpus: Corpus, excerpts: Sequence[tuple[int, int]], counted: Counts) -> Fit:
    """Fit the worth of words to what the server counted.

    Args:
        excerpts: first word and number of words of each text, short texts first.
        counted: int64 [texts], its tokens.
    """
    sums = np.array([corpus.sums(start, count) for start, count in excerpts])
    features = np.column_stack([np.ones(len(excerpts)), sums])
    # A long text's tokens are known no less well, in parts of it.
    weights = 1 / np.maximum(counted, 1)
    solution, *_ = np.linalg.lstsq(features * weights[:, None], counted * weights, rcond=1e-4)
    errors = np.abs(features @ solution - counted) * weights
    worth = np.maximum(corpus.features @ solution[1:], 1e-3)
    return Fit(worth, float(solution[0]), float(errors[len(errors) // 2 :].max(initial=0.0)))


def _features(word: str) -> tuple[float, ...]:
    lower = sum(character.islower() for character in word)
    upper = sum(character.isupper() for character in word)
    digits = sum(character.isdigit() for character in word)
    features = (1, lower, upper, digits, len(word.encode()) - lower - upper - digits)
    assert len(features) == _KINDS  # noqa: S101
    return features
