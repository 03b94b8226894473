"""The requests of a run: drawn or recorded, cut to the window, each with a text of its own."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.load.generation import TextTraffic, Trace, parse_lengths
from tritonkit.perf.load.generation.prompts import Corpus, Fit
from tritonkit.perf.load.generation.requests import TextRequests, requests_of

CORPUS = Corpus()
WORTH = Fit(np.ones(len(CORPUS.words)), 0.0, 0.05)
"""A tokenizer of words; texts may have a twentieth more or less."""


def made(traffic: TextTraffic, count: int = 200, seed: int = 0, window: int = 512) -> TextRequests:
    """For a model with such a window."""
    return requests_of(traffic, count, seed, CORPUS, WORTH, window)


def traffic(prompt: str, output: str, prefix: int = 0) -> TextTraffic:
    """Lengths as on a command line."""
    lengths = parse_lengths("--prompt-tokens", prompt), parse_lengths("--output-tokens", output)
    return TextTraffic(*lengths, prefix)


def test_texts_have_the_drawn_lengths_and_begin_differently() -> None:
    """A prefix cache knows none of them; a seed draws the same again."""
    requests = made(traffic("20-40", "5-9"))
    texts = [requests.text(CORPUS, k) for k in range(len(requests))]
    assert [len(text.split()) for text in texts] == requests.prompt.tolist()
    assert len(set(requests.start.tolist())) == len(requests)
    assert not requests.clipped.any()
    again, other = made(traffic("20-40", "5-9")), made(traffic("20-40", "5-9"), seed=1)
    assert again.text(CORPUS, 3) == texts[3]
    assert other.text(CORPUS, 3) != texts[3]


def test_what_is_too_long_for_the_window_is_shortened_and_counted() -> None:
    """Prompt and answer are cut by the same factor, with room for a text that has more tokens than it should."""
    requests = made(traffic("sharegpt", "sharegpt"))
    assert 20 < requests.clipped.sum() < 200
    assert (1.1 * requests.prompt + requests.output <= 512 - 4).all()
    twice = made(traffic("400", "800"), 2)
    assert twice.clipped.all()
    assert twice.words.tolist() == twice.prompt.tolist()
    assert twice.output / twice.prompt == pytest.approx([2, 2], abs=0.05)


def test_a_shared_prefix_stands_before_each_prompt() -> None:
    """It is part of the prompt's tokens."""
    # Of words that are all different: Python's documentation says some things twice.
    words = Corpus(" ".join("".join(letters) for letters in product(ascii_lowercase, repeat=3)))
    worth = Fit(np.ones(len(words.words)), 0.0, 0.05)
    requests = requests_of(traffic("10", "5", prefix=30), 200, 0, words, worth, 512)
    texts = [requests.text(words, k).split() for k in range(len(requests))]
    assert {tuple(text[:30]) for text in texts} == {tuple(texts[0][:30])}
    assert len({tuple(text[30:]) for text in texts}) == len(texts)
    assert [len(text) for text in texts] == requests.prompt.tolist() == [40] * len(requests)


def test_a_prefix_without_room_beside_it() -> None:
    """Said before anything is sent."""
    with pytest.raises(UsageError, match="--shared-prefix"):
        made(traffic("10", "5", prefix=500))


def test_a_trace_is_sent_in_its_order_round_and_round() -> None:
    """With its own lengths."""
    trace = Trace(Path("trace.csv"), np.array([10, 20, 30]), np.array([3, 2, 1]))
    lengths = parse_lengths("--prompt-tokens", "7")
    requests = made(TextTraffic(lengths, lengths, 0, trace), 4)
    assert requests.prompt.tolist() == [10, 20, 30, 10]
    assert requests.output.tolist() == [3, 2, 1, 3]
