"""Pool token vectors to their mean, as sentence-transformers computes it: the step `pool` with its defaults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pool_core


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    dimension: int
    normalize: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        pool_core.Settings(self.dimension)


def mean_pool(hidden: np.ndarray, mask: np.ndarray, settings: Settings) -> np.ndarray:
    """The mean [batch, dimension] over the tokens that count, of length 1 with `normalize`; raises what pool raises."""
    return pool_core.pool(hidden, mask, pool_core.Settings(settings.dimension, normalize=settings.normalize))
