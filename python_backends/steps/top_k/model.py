"""Triton adapter of top_k: logits FP32 [classes] to label BYTES [k] and score FP32 [k]."""

from __future__ import annotations

from typing import Any

import numpy as np
from step_scores import read_labels, read_logits, split
from step_support import Arrays, loading, settings_from
from top_k_core import Settings, top_k


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and labels; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.labels = read_labels(self.step.file("labels"), self.settings.k)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Rank all requests together, because calling numpy costs more than ranking small arrays."""
        return self.step.answer(requests, self._read, self._rank)

    def _read(self, request: Any) -> np.ndarray:
        return read_logits(self.step, request, len(self.labels), self.settings.softmax)

    def _rank(self, batches: list[np.ndarray]) -> list[Arrays]:
        return split(top_k(np.concatenate(batches), self.labels, self.settings), batches)
