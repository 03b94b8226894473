"""Triton adapter of text_lines: quad, text, score and count of lines to those that stay, and the page's text."""

from __future__ import annotations

from typing import Any

from step_support import Arrays, loading, settings_from
from text_lines_core import Settings, text_lines


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Join each request's lines alone: pages have different numbers of them."""
        return self.step.answer(requests, self._join, compute=list)

    def _join(self, request: Any) -> Arrays:
        inputs = (self.step.read(request, name) for name in ("quad", "text", "score", "count"))
        return text_lines(*inputs, self.settings)
