"""Turn logits into scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from step_scores import check_logits, sigmoid, softmax

FUNCTIONS = ("softmax", "sigmoid", "argmax", "threshold", "none")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    function: str = "softmax"
    temperature: float = 1.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.function not in FUNCTIONS:
            raise ValueError(f"parameter function: found '{self.function}', wanted one of {', '.join(FUNCTIONS)}")
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"parameter temperature: found {self.temperature}, wanted a number above 0")
        if not math.isfinite(self.threshold):
            raise ValueError(f"parameter threshold: found {self.threshold}, wanted a number")


def activate(logits: np.ndarray, settings: Settings) -> np.ndarray:
    """The scores of logits, float32 [batch, classes] as they are.

    Raises:
        ValueError: NaN; with softmax, a largest logit that is infinite; names the item.
    """
    check_logits(logits, None, settings.function == "softmax")
    if settings.temperature != 1:
        with np.errstate(over="ignore"):  # refused below
            logits = logits / np.float32(settings.temperature)
        check_logits(logits, None, settings.function == "softmax")
    if settings.function == "softmax":
        return softmax(logits)
    if settings.function == "sigmoid":
        return sigmoid(logits)
    if settings.function == "threshold":
        return (logits >= np.float32(settings.threshold)).astype(np.float32)
    if settings.function == "argmax":
        best = np.argmax(logits, axis=1)[:, None]
        return (np.arange(logits.shape[1]) == best).astype(np.float32)
    return logits
