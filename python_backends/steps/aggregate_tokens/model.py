"""Triton adapter of aggregate_tokens: logits FP32 [tokens, classes] to the entities of a text."""

from __future__ import annotations

from typing import Any

from aggregate_tokens_core import Aggregator, Settings, check_tokens, padded, without_overlaps
from step_scores import read_labels
from step_support import Arrays, loading, settings_from
from step_texts import check_places, read_texts

PLACES = ("offsets", "sequence_ids", "word_ids")


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and labels; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.labels = read_labels(self.step.file("labels"))
            self.settings = settings_from(Settings, self.step.parameters)
            self.step.hold_windows(self.settings.windows)
            self.aggregator = Aggregator(self.labels, self.settings)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Join the tokens of each request alone, because their lengths differ."""
        return self.step.answer(requests, self._join, compute=list)

    def _join(self, request: Any) -> Arrays:
        texts = read_texts(self.step, request, "text")
        windows = self.settings.windows
        logits = self.step.rows(request, ["logits"], windows)["logits"]  # [batch, tokens, classes]
        places = self.step.rows(request, PLACES, windows)  # [batch, tokens, ...]
        of_rows = texts * len(logits) if windows else texts
        check_places(places, logits.shape[:2], of_rows, 0)
        try:
            check_tokens(logits, places["sequence_ids"], len(self.labels))
        except ValueError as error:
            raise ValueError(f"input 'logits': {error}") from error
        rows = zip(logits, *places.values(), of_rows, strict=True)
        entities = [self.aggregator.entities(*row) for row in rows]
        return padded([without_overlaps(entities)] if windows else entities, texts, self.settings.k)
