"""Triton adapter of normalize: embedding FP32 [dimension] to one of length 1."""

from __future__ import annotations

from typing import Any

from normalize_core import Settings, normalize
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Scale each request's vectors."""
        return self.step.answer(requests, self._normalize, compute=list)

    def _normalize(self, request: Any) -> Arrays:
        try:
            return {"embedding": normalize(self.step.read(request, "embedding"), self.settings)}
        except ValueError as error:
            raise ValueError(f"input 'embedding': {error}") from error
