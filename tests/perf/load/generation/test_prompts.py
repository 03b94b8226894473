"""Prompts of a given number of tokens, by real tokenizers that the generator does not have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.python_backends.llm_network import byte_tokenizer, fallback_tokenizer, word_tokenizer
from tritonkit.perf.load.generation.prompts import Corpus, Fit, fit

CORPUS = Corpus()


def pairs_tokenizer() -> Tokenizer:
    """Byte pairs of English, as in GPT-2 and its followers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<begin>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([CORPUS.take(0, 20_000)], trainer)
    return tokenizer


def fitted(tokenizer: Tokenizer, begin: int = 0) -> Fit:
    """Counts as from a server with that tokenizer, which puts some tokens before each prompt."""
    rng = np.random.default_rng(1)
    sizes = np.geomspace(4, 120, 24).astype(int).tolist()
    excerpts = [(int(rng.integers(len(CORPUS.words))), size) for size in sizes]
    counted = [begin + len(tokenizer.encode(CORPUS.take(*excerpt)).ids) for excerpt in excerpts]
    return fit(CORPUS, excerpts, np.array(counted))


@pytest.mark.parametrize(
    ("make", "most"),
    [(word_tokenizer, 0.0), (byte_tokenizer, 0.08), (fallback_tokenizer, 0.08), (pairs_tokenizer, 0.12)],
)
def test_prompts_have_about_the_tokens_that_were_asked_for(make: Callable[[], Tokenizer], most: float) -> None:
    """Each prompt nearly, and all of them together within a few percent."""
    tokenizer = make()
    worth = fitted(tokenizer, begin=2)
    rng = np.random.default_rng(2)
    starts, target = rng.integers(0, len(CORPUS.words), 200), rng.integers(40, 500, 200)
    words = worth.words(starts, target)
    texts = [CORPUS.take(*excerpt) for excerpt in zip(starts.tolist(), words.tolist(), strict=True)]
    counts = np.array([2 + len(tokenizer.encode(text).ids) for text in texts])
    assert np.abs(counts - target).mean() <= most * target.mean()
    assert counts.sum() == pytest.approx(target.sum(), rel=0.05)


def test_a_prompt_longer_than_the_whole_text() -> None:
    """The text goes round and round; one shorter than a word is a word."""
    corpus = Corpus("one two three")
    worth = Fit(np.ones(3), 0.0, 0.0)
    assert worth.words(np.array([1, 2]), np.array([7, 1])).tolist() == [7, 1]
    assert corpus.take(1, 7) == "two three one two three one two"
    assert worth.words(np.array([0]), np.array([0])).tolist() == [1]


def test_the_text_is_words() -> None:
    """Tens of thousands, so that prompts begin differently; no code."""
    assert len(CORPUS.words) > 30_000
    assert not [word for word in CORPUS.words if "=" in word or "*" in word]
