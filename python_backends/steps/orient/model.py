"""Triton adapter of orient: line, widths and scores to pixels FP32 [3, height, width]."""

from __future__ import annotations

from typing import Any

from orient_core import Settings, orient
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Turn each request's lines alone, because widths differ."""
        return self.step.answer(requests, self._orient, compute=list)

    def _orient(self, request: Any) -> Arrays:
        lines, widths = (self.step.read(request, name) for name in ("line", "widths"))
        scores = self.step.read(request, "scores") if self.settings.scores else None
        return {"pixels": orient(lines, widths, scores, self.settings)}
