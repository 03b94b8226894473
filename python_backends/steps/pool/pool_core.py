"""Pool token vectors to one vector of a text, as sentence-transformers computes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MODES = ("mean", "cls", "max", "last", "weighted")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    dimension: int
    mode: str = "mean"
    truncate_to: int = 0
    normalize: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.dimension < 1:
            raise ValueError(f"parameter dimension: found {self.dimension}, wanted at least 1")
        if self.mode not in MODES:
            raise ValueError(f"parameter mode: found '{self.mode}', wanted one of {', '.join(MODES)}")
        if not 0 <= self.truncate_to <= self.dimension:
            raise ValueError(
                f"parameter truncate_to: found {self.truncate_to}, wanted at most {self.dimension}, the dimension"
            )


def pool(hidden: np.ndarray, mask: np.ndarray, settings: Settings) -> np.ndarray:
    """One vector for each text, of its tokens that count; zeros for a text without any.

    The floors of means and lengths are those of sentence-transformers: 1e-9 under the token count (`Pooling`), 1e-12
    under the length (`Normalize`).

    Args:
        hidden: float32 [batch, tokens, dimension].
        mask: int64 [batch, tokens], 1 where a token counts; means weight each token by its value.
        settings: the step's.

    Returns:
        float32 [batch, truncate_to].

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
    hidden = hidden[:, :, : settings.truncate_to or settings.dimension]
    with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the item
        pooled = _pooled(hidden, mask, settings.mode)
        if settings.normalize:  # in float64, because float32 has no squares of numbers beyond 1e19
            squares = np.einsum("bd,bd->b", pooled, pooled, dtype=np.float64)
            pooled = pooled / np.maximum(np.sqrt(squares)[:, None], np.float32(1e-12))
    finite = np.isfinite(pooled).all(axis=1)
    if not finite.all():
        raise ValueError(f"input 'last_hidden_state', item {int(np.argmin(finite))}: its embedding is not finite")
    return np.asarray(pooled, dtype=np.float32)


def _pooled(hidden: np.ndarray, mask: np.ndarray, mode: str) -> np.ndarray:
    """Vectors [batch, dimension] of hidden [batch, tokens, dimension], where mask [batch, tokens] is not 0."""
    counts = mask != 0
    if not hidden.shape[1]:
        return np.zeros((len(hidden), hidden.shape[2]), np.float32)
    first = np.argmax(counts, axis=1)
    some = counts.any(axis=1)[:, None]
    if mode == "max":
        best = hidden.max(axis=1, where=counts[:, :, None], initial=-np.inf)
        return np.where(some, best, np.float32(0))
    if mode in ("cls", "last"):
        last = counts.shape[1] - 1 - np.argmax(counts[:, ::-1], axis=1)
        return np.where(some, hidden[np.arange(len(hidden)), first if mode == "cls" else last], np.float32(0))
    weights = mask.astype(np.float32)
    if mode == "weighted":
        weights *= np.arange(1, counts.shape[1] + 1, dtype=np.float32) - first[:, None].astype(np.float32)
    total = np.einsum("bt,btd->bd", weights, hidden)
    return np.asarray(total / np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-9)))
