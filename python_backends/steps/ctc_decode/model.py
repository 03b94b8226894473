"""Triton adapter of ctc_decode: logits FP32 [frames, classes] to text BYTES [1] and score FP32 [1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from ctc_decode_core import Settings, decode
from ctc_decode_vocabulary import read_vocabulary
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters and vocabulary; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            settings = self.settings = settings_from(Settings, self.step.parameters)
            file = self.step.file("vocabulary")
            self.vocabulary = read_vocabulary(file, settings.blank, settings.word_delimiter, settings.skip_special)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request alone, because their lengths differ."""
        return self.step.answer(requests, self._decode, compute=list)

    def _decode(self, request: Any) -> Arrays:
        logits = self.step.read(request, "logits")  # [batch, frames, classes]
        frames = self._frames(request, logits)
        try:
            texts, scores = decode(logits, frames, self.vocabulary, self.settings)
        except ValueError as error:
            raise ValueError(f"input 'logits', {error}") from error
        return {"text": texts, "score": scores}

    def _frames(self, request: Any, logits: np.ndarray) -> list[int]:
        """The number of frames that count, of each item."""
        settings = self.settings
        if settings.length == "all":
            return [logits.shape[1]] * len(logits)
        given = self.step.read(request, settings.length)
        counts: list[int] = given.astype(np.int64).sum(axis=1).tolist()  # of a mask, its ones
        return counts if settings.length == "frames" else [settings.frames_of(count) for count in counts]
