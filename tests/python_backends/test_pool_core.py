"""pool and normalize without Triton, against float64 and sentence-transformers' own module."""

from __future__ import annotations

from typing import Any

import normalize_core
import numpy as np
import pytest
from mean_pool_core import Settings as MeanSettings
from mean_pool_core import mean_pool
from normalize_core import normalize
from pool_core import MODES, Settings, pool

LENGTHS = np.array([7, 3, 1, 5])
THEIR_NAMES = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken", "weighted": "weightedmean"}


def example(left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Texts of several lengths, padded on one side."""
    hidden = np.random.default_rng(5).normal(size=(4, 7, 6)).astype(np.float32)
    mask = (np.arange(7) < LENGTHS[:, None]).astype(np.int64)
    return hidden, mask[:, ::-1].copy() if left else mask


def reference(tokens: np.ndarray, mode: str) -> np.ndarray:
    """The vector of a text's tokens [tokens, dimension], in float64."""
    weights = np.arange(1, len(tokens) + 1)[:, None]
    by_mode = {
        "mean": tokens.mean(axis=0),
        "cls": tokens[0],
        "max": tokens.max(axis=0),
        "last": tokens[-1],
        "weighted": (tokens * weights).sum(axis=0) / weights.sum(),
    }
    return np.asarray(by_mode[mode])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_vectors_of_the_tokens_that_count(mode: str, left: bool) -> None:
    """Padding on either side has no part in any mode."""
    hidden, mask = example(left)
    pooled = pool(hidden, mask, Settings(6, mode, normalize=False))
    assert pooled.dtype == np.float32
    expected = [reference(row[counts == 1].astype(np.float64), mode) for row, counts in zip(hidden, mask, strict=True)]
    np.testing.assert_allclose(pooled, expected, atol=1e-6)
    scaled = pool(hidden, mask, Settings(6, mode, 4))
    cut = np.array(expected)[:, :4]
    np.testing.assert_allclose(scaled, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_matches_sentence_transformers(mode: str, left: bool) -> None:
    """Pooling and Normalize of the library itself give the same vectors."""
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("sentence_transformers.models")
    hidden, mask = example(left)
    features = {"token_embeddings": torch.from_numpy(hidden), "attention_mask": torch.from_numpy(mask)}
    features = modules.Normalize()(modules.Pooling(6, pooling_mode=THEIR_NAMES[mode])(features))
    np.testing.assert_allclose(pool(hidden, mask, Settings(6, mode)), features["sentence_embedding"].numpy(), atol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
def test_mean_pool_is_the_mean(normalize: bool) -> None:
    """The older step has two parameters, and the same answers."""
    hidden, mask = example()
    expected = pool(hidden, mask, Settings(6, normalize=normalize))
    np.testing.assert_array_equal(mean_pool(hidden, mask, MeanSettings(6, normalize)), expected)
    with pytest.raises(ValueError, match="dimension: found 0, wanted at least 1"):
        MeanSettings(0)


def test_means_weight_tokens_by_their_mask() -> None:
    """A mask may have other numbers than 0 and 1, as sentence-transformers takes them."""
    hidden, mask = example()
    mask[0] = [3, 0, 1, 0, 2, 0, 0]
    wide = hidden[0].astype(np.float64)
    pooled = pool(hidden, mask, Settings(6, normalize=False))
    np.testing.assert_allclose(pooled[0], (3 * wide[0] + wide[2] + 2 * wide[4]) / 6, atol=1e-6)
    weighted = pool(hidden, mask, Settings(6, "weighted", normalize=False))
    np.testing.assert_allclose(weighted[0], (3 * wide[0] + 3 * wide[2] + 10 * wide[4]) / 16, atol=1e-6)
    np.testing.assert_array_equal(pool(hidden, mask * 2, Settings(6, "max")), pool(hidden, mask, Settings(6, "max")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [1e20, 1e37])
def test_large_vectors_have_length_one(mode: str, factor: float) -> None:
    """Squares of their numbers are too large for float32, and their length may be, too."""
    hidden, mask = example()
    expected = pool(hidden, mask, Settings(6, mode))
    np.testing.assert_allclose(pool(hidden * np.float32(factor), mask, Settings(6, mode)), expected, atol=1e-6)
    full = np.full((1, 2, 6), 1.5e38, np.float32)
    np.testing.assert_allclose(pool(full, np.ones((1, 2), np.int64), Settings(6)), [[6**-0.5] * 6], atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_text_without_tokens_gives_zeros(mode: str) -> None:
    """Neither an empty mask nor a length of 0 gives NaN, infinity or the vector of padding."""
    hidden, mask = example()
    mask[1] = 0
    assert not pool(hidden, mask, Settings(6, mode))[1].any()
    assert pool(hidden, mask, Settings(6, mode))[[0, 2, 3]].any(axis=1).all()
    assert pool(hidden[:, :0], mask[:, :0], Settings(6, mode)).tolist() == [[0.0] * 6] * 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_result_that_is_not_finite_is_refused(mode: str, value: float) -> None:
    """NaN and infinity of a token that counts are named with their item."""
    hidden, mask = example()
    hidden[2] = value
    with pytest.raises(ValueError, match="input 'last_hidden_state', item 2: its embedding is not finite"):
        pool(hidden, mask, Settings(6, mode))


def test_a_mean_that_is_too_large_for_float32_is_refused() -> None:
    """The sum of the tokens is not finite."""
    with pytest.raises(ValueError, match="item 0: its embedding is not finite"):
        pool(np.full((1, 3, 4), 3e38, np.float32), np.ones((1, 3), np.int64), Settings(4))


@pytest.mark.parametrize("mode", ["cls", "max", "last"])
def test_padding_may_be_anything(mode: str) -> None:
    """Modes that choose tokens do not read padding."""
    hidden, mask = example()
    expected = pool(hidden, mask, Settings(6, mode))
    hidden[mask == 0] = np.nan
    np.testing.assert_array_equal(pool(hidden, mask, Settings(6, mode)), expected)


@pytest.mark.parametrize(
    ("hidden", "mask", "message"),
    [
        ((2, 3, 5), (2, 3), "found width 5, wanted 4"),
        ((2, 3, 4), (2, 2), r"found shape \[2, 2\], wanted \[2, 3\]"),
        ((2, 3, 4), (1, 3), r"found shape \[1, 3\], wanted \[2, 3\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(hidden: tuple[int, ...], mask: tuple[int, ...], message: str) -> None:
    """Width and mask are checked against each other, never broadcast."""
    with pytest.raises(ValueError, match=message):
        pool(np.zeros(hidden, np.float32), np.ones(mask, np.int64), Settings(4))


@pytest.mark.parametrize("settings", [Settings, normalize_core.Settings])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dimension": 0}, "dimension: found 0, wanted at least 1"),
        ({"dimension": 4, "truncate_to": 5}, "truncate_to: found 5, wanted at most 4, the dimension"),
        ({"dimension": 4, "truncate_to": -1}, "truncate_to: found -1"),
    ],
)
def test_unfit_parameters_are_refused(settings: Any, values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        settings(**values)


def test_an_unknown_mode_is_refused() -> None:
    """The message lists the modes."""
    with pytest.raises(ValueError, match="mode: found 'sum', wanted one of mean, cls, max, last, weighted"):
        Settings(4, "sum")


def test_normalize_scales_to_length_one() -> None:
    """Large and tiny vectors too, whose squares no float32 holds; zeros stay zeros."""
    vectors = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    vectors *= np.array([1, 1e30, 1e-30, 0, 3], np.float32)[:, None]
    scaled = normalize(vectors, normalize_core.Settings(8))
    assert scaled.dtype == np.float32
    wide = vectors.astype(np.float64)[[0, 1, 2, 4]]
    np.testing.assert_allclose(scaled[[0, 1, 2, 4]], wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=1e-6)
    assert not scaled[3].any()
    cut = normalize(vectors, normalize_core.Settings(8, 3))
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), [1, 1, 1, 0, 1], atol=1e-6)


def test_normalize_refuses_what_has_no_direction() -> None:
    """NaN, infinity and another width are refused, with the item."""
    with pytest.raises(ValueError, match="found width 3, wanted 4"):
        normalize(np.ones((2, 3), np.float32), normalize_core.Settings(4))
    for value in (np.nan, np.inf):
        vectors = np.ones((2, 4), np.float32)
        vectors[1, 2] = value
        with pytest.raises(ValueError, match="item 1: it has numbers that are not finite"):
            normalize(vectors, normalize_core.Settings(4))
