"""Triton adapter of tokenize: text BYTES [1] to input_ids and attention_mask INT64 [length]."""

from __future__ import annotations

import os
from itertools import accumulate, chain, pairwise
from typing import Any

from step_support import Arrays, loading, settings_from
from step_texts import read_texts
from tokenize_core import Settings, Text, TextTokenizer


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and tokenizer; raises TritonModelException for unfit ones."""
        # The library starts a thread per core for each batch; the cores belong to the network, and
        # `instance_group` says how many tokenizers run concurrently.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.tokenizer = TextTokenizer(self.step.file("tokenizer"), self.settings)
            self.step.hold_windows(self.settings.windows)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Tokenize all texts together; pad each request to its own bucket."""
        if self.settings.windows:
            return self.step.answer(requests, self._windows, compute=list)
        return self.step.answer(requests, self._read, self._encode)

    def _windows(self, request: Any) -> Arrays:
        """The windows of the one text of a request, as one item without a batch axis."""
        [text] = self._read(request)
        try:
            rows = self.tokenizer.windows(text)
        except ValueError as error:
            raise ValueError(f"input 'text', {error}") from error
        return {name: array[None] for name, array in self.tokenizer.pad(rows).items()}

    def _read(self, request: Any) -> list[Text]:
        texts = read_texts(self.step, request, "text", self.settings.max_bytes)
        if not self.settings.pair:
            return list(texts)
        others = read_texts(self.step, request, "text_pair", self.settings.max_bytes)
        if len(texts) != len(others):
            raise ValueError(f"input 'text_pair': found {len(others)} texts, wanted {len(texts)}, as many as in 'text'")
        return list(zip(texts, others, strict=True))

    def _encode(self, batches: list[list[Text]]) -> list[Arrays]:
        try:
            rows = self.tokenizer.encode(list(chain.from_iterable(batches)))
        except ValueError as error:
            raise ValueError(f"input 'text', {error}") from error
        edges = pairwise([0, *accumulate(len(batch) for batch in batches)])
        return [self.tokenizer.pad(rows[start:stop]) for start, stop in edges]
