"""mean_pool without Triton, against the formula of sentence-transformers in float64."""

import numpy as np
import pytest
from mean_pool_core import Settings, mean_pool


def reference(hidden: np.ndarray, mask: np.ndarray, normalize: bool) -> np.ndarray:
    """The same in float64, one item at a time."""
    rows = []
    for tokens, weights in zip(hidden.astype(np.float64), mask, strict=True):
        row = (tokens * weights[:, None]).sum(axis=0) / max(weights.sum(), 1e-9)
        rows.append(row / max(np.linalg.norm(row), 1e-12) if normalize else row)
    return np.array(rows)


@pytest.mark.parametrize("normalize", [True, False])
def test_mean_of_the_tokens_that_count(normalize: bool) -> None:
    """Padding has no part in the mean, and an empty mask gives zeros."""
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(4, 7, 6)).astype(np.float32)
    mask = (np.arange(7) < np.array([7, 3, 1, 0])[:, None]).astype(np.int64)
    pooled = mean_pool(hidden, mask, Settings(6, normalize))
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, reference(hidden, mask, normalize), atol=1e-6)
    assert not pooled[3].any()


@pytest.mark.slow
def test_matches_sentence_transformers() -> None:
    """Pooling then Normalize of the library itself give the same vectors."""
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("sentence_transformers.models")
    rng = np.random.default_rng(6)
    hidden = rng.normal(size=(3, 9, 8)).astype(np.float32)
    mask = (np.arange(9) < np.array([9, 4, 1])[:, None]).astype(np.int64)
    features = {"token_embeddings": torch.from_numpy(hidden), "attention_mask": torch.from_numpy(mask)}
    features = modules.Normalize()(modules.Pooling(8, pooling_mode="mean")(features))
    pooled = mean_pool(hidden, mask, Settings(8))
    np.testing.assert_allclose(pooled, features["sentence_embedding"].numpy(), atol=1e-6)


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
        mean_pool(np.zeros(hidden, np.float32), np.ones(mask, np.int64), Settings(4))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_result_that_is_not_finite_is_refused(value: float) -> None:
    """NaN, infinity and float32 overflow are named with their item instead of being returned."""
    hidden = np.zeros((2, 3, 4), np.float32)
    hidden[1] = value
    with pytest.raises(ValueError, match="item 1: its mean is not finite"):
        mean_pool(hidden, np.ones((2, 3), np.int64), Settings(4))
