"""The texts of sentences: real prose that Python carries, and the scores taken on it."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BUCKETS = (16, 32, 64, 128, 256)
Batches = list[dict[str, Any]]


@pytest.fixture(scope="module")
def held_out(data: ModuleType) -> Batches:
    """The tokens on which the network is checked."""
    batches: Batches = data.token_batches()
    return batches


def test_this_python_carries_prose_enough(data: ModuleType) -> None:
    """Three times as many whole sentences as are used, each once and always in the same order."""
    texts = data.choose(0, 900)
    assert len(set(texts)) == 900
    assert texts[200:250] == data.choose(200, 250)
    for text in texts:
        assert re.fullmatch(r"[A-Z].*[.!?]", text), text
        assert 5 <= len(text.split()) <= 60
        assert not re.search(r'[*_`"<>{}=\\|]|\s\s', text), text


def test_python_without_enough_prose_is_an_error(data: ModuleType) -> None:
    """A Python with fewer sentences is an error, so that nobody measures on fewer without knowing."""
    with pytest.raises(ValueError, match="sentences of prose, wanted 100000"):
        data.choose(0, 100_000)


def rows(batches: Batches) -> list[tuple[int, ...]]:
    """The tokens of each text, without padding."""
    return [
        tuple(ids[mask == 1].tolist())
        for batch in batches
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]


def test_tokens_of_250_texts_are_padded_to_their_buckets(held_out: Batches) -> None:
    """Each text starts with [CLS], ends with [SEP], and lies in the smallest bucket that holds it."""
    lengths = [batch["input_ids"].shape[1] for batch in held_out]
    assert lengths == sorted(lengths)
    assert set(lengths) <= set(BUCKETS)
    assert lengths[-1] == 256
    for batch in held_out:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        assert ids.dtype == mask.dtype == np.int64
        assert len(ids) <= 32
        assert not ids[mask == 0].any()
        smaller = max((b for b in BUCKETS if b < ids.shape[1]), default=0)
        assert mask.sum(axis=1).min() > smaller
    texts = rows(held_out)
    assert len(texts) == 250
    assert {(row[0], row[-1]) for row in texts} == {(101, 102)}


def test_calibration_fills_each_bucket_with_other_texts(data: ModuleType, held_out: Batches) -> None:
    """Each bucket has a batch without padding, and one text has some; none of them is held out."""
    batches = data.calibration_batches()
    shapes = [batch["input_ids"].shape for batch in batches]
    assert shapes[:5] == [(16, 16), (16, 32), (8, 64), (4, 128), (2, 256)]
    assert all(batch["attention_mask"].all() for batch in batches[:5])
    assert not all(batch["attention_mask"].all() for batch in batches[5:])
    texts = rows(batches)
    assert {(row[0], row[-1]) for row in texts} == {(101, 102)}
    assert not any({101, 102, 0} & set(row[1:-1]) for row in texts)
    parts = {row[i : i + 8] for row in rows(held_out) for i in range(len(row) - 7)}
    assert not [row for row in texts if row[2:10] in parts]


def hidden_states(held_out: Batches, seed: int) -> Batches:
    """Random outputs of the network for the held-out texts."""
    random = np.random.default_rng(seed)
    return [
        {"last_hidden_state": random.standard_normal((*b["input_ids"].shape, 384), dtype=np.float32)} for b in held_out
    ]


def test_cosine_is_that_of_the_embeddings(data: ModuleType, held_out: Batches) -> None:
    """One score per text: 1 for the same, near 0 for chance, and padding does not count."""
    reference = hidden_states(held_out, 0)
    np.testing.assert_allclose(data.cosine(reference, reference), np.ones(250), atol=1e-5)
    other = data.cosine(hidden_states(held_out, 1), reference)
    assert other.shape == (250,)
    assert abs(other.mean()) < 0.05
    masks = [b["attention_mask"][..., None] for b in held_out]
    padding = [
        {"last_hidden_state": b["last_hidden_state"] + 9 * (mask == 0)}
        for b, mask in zip(reference, masks, strict=True)
    ]
    np.testing.assert_allclose(data.cosine(padding, reference), np.ones(250), atol=1e-5)


def test_fewer_texts_are_scored_too(data: ModuleType, held_out: Batches) -> None:
    """quality.max_samples gives the first items alone: whole batches, and a part of the last."""
    reference = hidden_states(held_out, 0)[:2]
    reference[1] = {"last_hidden_state": reference[1]["last_hidden_state"][:5]}
    first = reference[0]["last_hidden_state"].shape[0]
    assert data.cosine(reference, reference).shape == (first + 5,)
    assert data.spearman(reference, reference) == pytest.approx(1)


def test_spearman_is_the_textbook_one(data: ModuleType, held_out: Batches) -> None:
    """The rank correlation equals scipy's over all pairs; it is 1 for the same order, whatever the values."""
    from scipy.stats import spearmanr

    reference, noisy = hidden_states(held_out, 0), hidden_states(held_out, 1)
    for one, two in zip(reference, noisy, strict=True):
        two["last_hidden_state"] = one["last_hidden_state"] + 0.5 * two["last_hidden_state"]
    correlation = data.spearman(noisy, reference)
    upper = np.triu_indices(250, k=1)
    pairs = [(e @ e.T)[upper] for e in (data._embeddings(noisy), data._embeddings(reference))]
    assert correlation == pytest.approx(spearmanr(*pairs).statistic, abs=1e-9)
    assert 0.5 < correlation < 0.99
    same = np.tile(np.eye(3)[0], (4, 1))
    np.testing.assert_array_equal(data._pair_ranks(same), [3.5] * 6)  # equal pairs share their mean rank
