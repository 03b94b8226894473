"""Triton adapter of labels: logits FP32 [classes] to label BYTES [k], score FP32 [k] and count INT32 [1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from labels_core import Settings, label_logits
from step_scores import read_labels, read_logits, split
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and labels; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.labels = read_labels(self.step.file("labels"), self.settings.k)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Label all requests together, because calling numpy costs more than ranking small arrays."""
        return self.step.answer(requests, self._read, self._label)

    def _read(self, request: Any) -> np.ndarray:
        return read_logits(self.step, request, len(self.labels), self.settings.function == "softmax")

    def _label(self, batches: list[np.ndarray]) -> list[Arrays]:
        return split(label_logits(np.concatenate(batches), self.labels, self.settings), batches)
