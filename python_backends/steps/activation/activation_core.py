"""Turn logits into scores."""

from __future__ import annotations

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
        with np.errstate(over="ignore"):  # the numbers that count are of float32
            temperature, threshold = np.float32(self.temperature), np.float32(self.threshold)
        if not (temperature > 0 and np.isfinite(temperature)):
            raise ValueError(f"parameter temperature: found {self.temperature}, wanted a number above 0 that FP32 has")
        if not np.isfinite(threshold):
            raise ValueError(f"parameter threshold: found {self.threshold}, wanted a number that FP32 has")


def activate(logits: np.ndarray, settings: Settings) -> np.ndarray:
    """The scores of logits, float32 [batch, classes].

    Raises:
        ValueError: NaN; with softmax, a largest logit that is infinite; with none, any; names the item.
    """
    check_logits(logits, None, settings.function == "softmax")
    if settings.function == "argmax":  # of the logits themselves, which a temperature could make equal
        return (np.arange(logits.shape[1]) == np.argmax(logits, axis=1)[:, None]).astype(np.float32)
    if settings.temperature != 1:
        with np.errstate(over="ignore"):  # refused below, where it matters
            logits = logits / np.float32(settings.temperature)
        check_logits(logits, None, settings.function == "softmax")
    if settings.function == "softmax":
        return softmax(logits)
    if settings.function == "sigmoid":
        return sigmoid(logits)
    if settings.function == "threshold":
        return (logits >= np.float32(settings.threshold)).astype(np.float32)
    finite = np.isfinite(logits)
    if not finite.all():
        item, place = np.argwhere(~finite)[0].tolist()
        raise ValueError(f"item {item}: the score of class {place} is {logits[item, place]}, wanted a finite number")
    return logits
