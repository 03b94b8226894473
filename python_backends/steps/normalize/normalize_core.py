"""Scale vectors to length 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    dimension: int
    truncate_to: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.dimension < 1:
            raise ValueError(f"parameter dimension: found {self.dimension}, wanted at least 1")
        if not 0 <= self.truncate_to <= self.dimension:
            raise ValueError(
                f"parameter truncate_to: found {self.truncate_to}, wanted at most {self.dimension}, the dimension"
            )


def normalize(vectors: np.ndarray, settings: Settings) -> np.ndarray:
    """Vectors float32 [batch, dimension] of length 1, float32 [batch, truncate_to]; zeros stay zeros.

    Raises:
        ValueError: another width, or numbers that are not finite; names the item.
    """
    if vectors.shape[-1] != settings.dimension:
        raise ValueError(f"found width {vectors.shape[-1]}, wanted {settings.dimension}, the parameter dimension")
    vectors = vectors[:, : settings.truncate_to or settings.dimension]
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ValueError(f"item {int(np.argmin(finite))}: it has numbers that are not finite")
    # Divided by the largest first: squares of large numbers would not be finite, and those of small ones zero.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, np.float32(1))
    length = np.sqrt(np.einsum("bd,bd->b", scaled, scaled))[:, None]
    return np.asarray(scaled / np.where(length > 0, length, np.float32(1)))
