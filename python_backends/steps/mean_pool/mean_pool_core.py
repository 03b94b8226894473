"""Pool token vectors to one sentence vector, as sentence-transformers computes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    dimension: int
    normalize: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.dimension < 1:
            raise ValueError(f"parameter dimension: found {self.dimension}, wanted at least 1")


def mean_pool(hidden: np.ndarray, mask: np.ndarray, settings: Settings) -> np.ndarray:
    """The mean over the tokens that count, of length 1 with `normalize`.

    Both floors are those of sentence-transformers: 1e-9 under the token count (`Pooling`), 1e-12 under the length
    (`Normalize`), so a text without tokens gives zeros.

    Args:
        hidden: float32 [batch, tokens, dimension].
        mask: int64 [batch, tokens], 1 where a token counts.
        settings: the step's.

    Returns:
        float32 [batch, dimension].

    Raises:
        ValueError: shapes that do not fit, or a result that is not finite; names the item.
    """
    if hidden.shape[-1] != settings.dimension:
        raise ValueError(
            f"input 'last_hidden_state': found width {hidden.shape[-1]}, wanted"
            f" {settings.dimension}, the parameter dimension"
        )
    if mask.shape != hidden.shape[:2]:
        raise ValueError(
            f"input 'attention_mask': found shape {list(mask.shape)}, wanted"
            f" {list(hidden.shape[:2])}, that of last_hidden_state"
        )
    weights = mask.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the item
        total = np.einsum("bt,btd->bd", weights, hidden)
        pooled = total / np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-9))
        if settings.normalize:
            length = np.sqrt(np.einsum("bd,bd->b", pooled, pooled))[:, None]
            pooled = pooled / np.maximum(length, np.float32(1e-12))
    finite = np.isfinite(pooled).all(axis=1)
    if not finite.all():
        item = int(np.argmin(finite))
        raise ValueError(f"input 'last_hidden_state', item {item}: its mean is not finite")
    return np.asarray(pooled, dtype=np.float32)
