"""Triton adapter of best_span: start and end logits FP32 [tokens] to the k best answers of a context."""

from __future__ import annotations

from typing import Any

import numpy as np
from best_span_core import CONTEXT, Places, Settings, answers, answers_of_windows, check_span_logits, padded
from step_support import Arrays, loading, settings_from
from step_texts import check_places, read_texts


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.step.hold_windows(self.settings.windows)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Find the answers of each request alone, because their lengths differ."""
        return self.step.answer(requests, self._find, compute=list)

    def _find(self, request: Any) -> Arrays:
        contexts = read_texts(self.step, request, "text_pair")
        places = self.step.rows(request, Places._fields, self.settings.windows)  # [batch, tokens, ...]
        start = self._logits(request, "start_logits", places["sequence_ids"])
        end = self._logits(request, "end_logits", places["sequence_ids"])
        of_rows = contexts * len(start) if self.settings.windows else contexts
        check_places(places, start.shape, of_rows, CONTEXT)
        rows = [(one, other, Places(*where)) for one, other, *where in zip(start, end, *places.values(), strict=True)]
        if self.settings.windows:
            best = [answers_of_windows(rows, contexts[0], self.settings)]
        else:
            best = [answers(*row, text, self.settings) for row, text in zip(rows, contexts, strict=True)]
        return padded(best, self.settings.k)

    def _logits(self, request: Any, name: str, sequence_ids: np.ndarray) -> np.ndarray:
        logits = self.step.rows(request, [name], self.settings.windows)[name]
        if logits.shape != sequence_ids.shape:
            raise ValueError(
                f"input '{name}': found shape {list(logits.shape)}, wanted {list(sequence_ids.shape)}, as sequence_ids"
            )
        try:
            check_span_logits(logits, sequence_ids)
        except ValueError as error:
            raise ValueError(f"input '{name}', {error}") from error
        return logits
