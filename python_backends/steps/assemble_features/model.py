"""Triton adapter of assemble_features: record BYTES [1] to features FP32 [size]."""

from __future__ import annotations

from typing import Any

from assemble_features_core import Settings, assemble
from assemble_features_file import read_features
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and features; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.features = read_features(self.step.file("features"), self.settings.size)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Assemble each request alone: reading JSON costs more than small arrays do."""
        return self.step.answer(requests, self._assemble, compute=list)

    def _assemble(self, request: Any) -> Arrays:
        records = self.step.read(request, "record")[:, 0]
        try:
            return {"features": assemble(records, self.features, self.settings)}
        except ValueError as error:
            raise ValueError(f"input 'record', {error}") from error
