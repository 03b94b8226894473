"""Triton adapter of assemble_features: record BYTES [1], or an input [1] for each column, to features FP32 [size]."""

from __future__ import annotations

from typing import Any

from assemble_features_core import Settings, assemble, assemble_columns, check_columns
from assemble_features_file import read_features
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and features; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.features = read_features(self.step.file("features"), self.settings.size)
            columns = self.settings.columns
            self.columns = check_columns(columns, self.features) if columns else []

    def execute(self, requests: list[Any]) -> list[Any]:
        """Assemble each request alone: reading JSON costs more than small arrays do."""
        return self.step.answer(requests, self._assemble, compute=list)

    def _assemble(self, request: Any) -> Arrays:
        if self.columns:
            given = {name: self.step.read_optional(request, name) for name in self.columns}
            columns = {name: array[:, 0] for name, array in given.items() if array is not None}
            return {"features": assemble_columns(columns, self.features, self.settings)}
        records = self.step.read(request, "record")[:, 0]
        try:
            return {"features": assemble(records, self.features, self.settings)}
        except ValueError as error:
            raise ValueError(f"input 'record', {error}") from error
