"""Triton adapter of mask: logits FP32 [channels, height, width] to masks as run lengths or pixels."""

from __future__ import annotations

from typing import Any

from mask_core import Settings, masks
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Read each request alone, because its images have their own sizes."""
        return self.step.answer(requests, self._masks, compute=list)

    def _masks(self, request: Any) -> Arrays:
        sizes = self.step.read(request, "image_size") if self.settings.image_size else None
        return masks(self.step.read(request, "logits"), sizes, self.settings)
