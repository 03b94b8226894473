"""Triton adapter of mean_pool: token vectors and their mask to embedding FP32 [dimension]."""

from __future__ import annotations

from typing import Any

from mean_pool_core import Settings, mean_pool
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Pool each request alone, because their lengths differ and copying them together would cost more."""
        return self.step.answer(requests, self._pool, compute=list)

    def _pool(self, request: Any) -> Arrays:
        hidden = self.step.read(request, "last_hidden_state")  # [batch, tokens, dimension]
        mask = self.step.read(request, "attention_mask")  # [batch, tokens]
        return {"embedding": mean_pool(hidden, mask, self.settings)}
