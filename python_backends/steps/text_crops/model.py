"""Triton adapter of text_crops: image BYTES [1], quad and count to line, widths and start, one for each text."""

from __future__ import annotations

from typing import Any

import numpy as np
from decode_image_batch import Batch, answers, batch_of, naming
from step_support import Arrays, loading, settings_from
from text_crops_core import Settings, check_quads, lines, text_crops


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's pictures one after the other, once all are known to fit."""
        return self.step.answer(requests, self._read, self._cut)

    def _read(self, request: Any) -> Batch:
        images = self.step.read(request, "image")[:, 0]  # [batch]
        quads = self.step.read(request, "quad")
        check_quads(quads, self.settings)
        counts = np.clip(self.step.read(request, "count")[:, 0], 0, quads.shape[1])
        decoded = np.flatnonzero(counts > 0)  # without a text a picture is not decoded
        return batch_of(images, self.settings.pixels, decoded, quads, counts)

    def _cut(self, batches: list[Batch]) -> list[Arrays | Exception]:
        return answers(batches, self.settings.max_batch_decoded_bytes, self._lines)

    def _lines(self, images: np.ndarray, quads: np.ndarray, counts: np.ndarray) -> Arrays:
        pictures = []
        for item, (data, some, count) in enumerate(zip(images, quads, counts.tolist(), strict=True)):
            with naming(item):
                pictures.append(lines(text_crops(data, some[:count], self.settings), quads.shape[1], self.settings))
        longest = max(picture["line"].shape[2] for picture in pictures)
        for picture in pictures:
            room = longest - picture["line"].shape[2]
            picture["line"] = np.pad(picture["line"], ((0, 0), (0, 0), (0, room), (0, 0)))
        return {name: np.stack([picture[name] for picture in pictures]) for name in pictures[0]}
