"""Triton adapter of crop: image BYTES [1] and boxes to pixels FP32 or UINT8, one image for each box."""

from __future__ import annotations

from typing import Any

import numpy as np
from crop_core import Settings, check_boxes, crops
from decode_image_batch import Batch, answers, batch_of, naming
from decode_image_core import DTYPES
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's images one after the other, once all are known to fit."""
        return self.step.answer(requests, self._read, self._cut)

    def _read(self, request: Any) -> Batch:
        images = self.step.read(request, "image")[:, 0]  # [batch]
        boxes = self.step.read(request, self.settings.form)
        check_boxes(boxes, self.settings)
        counts = np.full(len(images), boxes.shape[1])
        if self.settings.count:
            counts = np.minimum(self.step.read(request, "count")[:, 0], boxes.shape[1])
        decoded = np.flatnonzero(counts > 0)  # without a box an image is not decoded
        return batch_of(images, self.settings, decoded, boxes, counts)

    def _cut(self, batches: list[Batch]) -> list[Arrays | Exception]:
        return answers(batches, self.settings.max_batch_decoded_bytes, self._pixels)

    def _pixels(self, images: np.ndarray, boxes: np.ndarray, counts: np.ndarray) -> Arrays:
        shape = (len(images), boxes.shape[1], *self.settings.shape)
        pixels = np.empty(shape, dtype=DTYPES[self.settings.dtype])
        for item, (data, some, count) in enumerate(zip(images, boxes, counts.tolist(), strict=True)):
            with naming(item):
                pixels[item] = crops(data, some, count, self.settings)
        return {"pixels": pixels}
