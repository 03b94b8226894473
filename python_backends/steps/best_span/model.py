"""Triton adapter of best_span: start and end logits FP32 [tokens] to the k best answers of a context."""

from __future__ import annotations

from typing import Any

import numpy as np
from best_span_core import CONTEXT, Places, Settings, answers, check_span_logits, padded
from step_support import Arrays, loading, settings_from
from step_texts import check_places, read_texts


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Find the answers of each request alone, because their lengths differ."""
        return self.step.answer(requests, self._find, compute=list)

    def _find(self, request: Any) -> Arrays:
        contexts = read_texts(self.step, request, "text_pair")
        places = {name: self.step.read(request, name) for name in Places._fields}  # [batch, tokens, ...]
        start = self._logits(request, "start_logits", places["sequence_ids"])
        end = self._logits(request, "end_logits", places["sequence_ids"])
        check_places(places, start.shape, contexts, CONTEXT)
        rows = zip(start, end, *places.values(), contexts, strict=True)
        best = [answers(one, other, Places(*where), text, self.settings) for one, other, *where, text in rows]
        return padded(best, self.settings.k)

    def _logits(self, request: Any, name: str, sequence_ids: np.ndarray) -> np.ndarray:
        logits = self.step.read(request, name)
        if logits.shape != sequence_ids.shape:
            raise ValueError(
                f"input '{name}': found shape {list(logits.shape)}, wanted {list(sequence_ids.shape)}, as sequence_ids"
            )
        try:
            check_span_logits(logits, sequence_ids)
        except ValueError as error:
            raise ValueError(f"input '{name}', {error}") from error
        return logits
