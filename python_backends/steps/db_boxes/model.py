"""Triton adapter of db_boxes: probability FP32 [1, height, width] to quad, score and count."""

from __future__ import annotations

from typing import Any

from db_boxes_core import Settings, db_boxes
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Read each request alone: its boxes are as many as its pages have."""
        return self.step.answer(requests, self._boxes, compute=list)

    def _boxes(self, request: Any) -> Arrays:
        sizes = self.step.read(request, "image_size") if self.settings.image_size else None
        return db_boxes(self.step.read(request, "probability"), sizes, self.settings)
