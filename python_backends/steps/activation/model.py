"""Triton adapter of activation: logits FP32 [classes] to scores FP32 [classes]."""

from __future__ import annotations

from typing import Any

from activation_core import Settings, activate
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Score each request alone, because their numbers of classes may differ."""
        return self.step.answer(requests, self._score, compute=list)

    def _score(self, request: Any) -> Arrays:
        try:
            return {"scores": activate(self.step.read(request, "logits"), self.settings)}
        except ValueError as error:
            raise ValueError(f"input 'logits': {error}") from error
