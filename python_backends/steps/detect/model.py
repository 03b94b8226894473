"""Triton adapter of detect: a detector's raw output to box, score, label, class_id and count."""

from __future__ import annotations

from typing import Any

from detect_core import FAMILIES, Settings, detect
from step_scores import read_labels
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and labels; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.labels = read_labels(self.step.file("labels"))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Read each request alone, because copying raw outputs together would cost more."""
        return self.step.answer(requests, self._detect, compute=list)

    def _detect(self, request: Any) -> Arrays:
        tensors = {name: self.step.read(request, name) for name in FAMILIES[self.settings.family].inputs}
        sizes = self.step.read(request, "image_size") if self.settings.image_size else None
        return detect(tensors, sizes, self.labels, self.settings)
