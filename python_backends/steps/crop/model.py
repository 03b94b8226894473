"""Triton adapter of crop: image BYTES [1] and boxes to pixels FP32 or UINT8, one image for each box."""

from __future__ import annotations

from typing import Any

import numpy as np
from crop_core import Settings, check_boxes, crops
from decode_image_core import decoded_bytes, fitting
from step_support import Arrays, Busy, loading, settings_from

Batch = tuple[np.ndarray, np.ndarray, np.ndarray, int]  # encoded images, boxes, counts, bytes of the images decoded


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.limit = self.settings.max_batch_decoded_bytes

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
        decoded = 0
        for index in np.flatnonzero(counts > 0):  # without a box an image is not decoded
            try:
                decoded += decoded_bytes(images[index], self.settings)
            except ValueError as error:
                raise ValueError(f"input 'image', item {index}: {error}") from error
        if decoded > self.limit:
            raise ValueError(
                f"input 'image': {len(images)} images of {decoded} bytes decoded; at most {self.limit}"
                " are taken together (parameter max_batch_decoded_bytes)"
            )
        return images, boxes, counts, decoded

    def _cut(self, batches: list[Batch]) -> list[Arrays | Exception]:
        fits = fitting([decoded for *_, decoded in batches], self.limit)
        return [
            self._pixels(batch) if fit else Busy(f"no room for {batch[3]} bytes of images next to the others")
            for batch, fit in zip(batches, fits, strict=True)
        ]

    def _pixels(self, batch: Batch) -> Arrays | Exception:
        images, boxes, counts, _ = batch
        pixels = []
        for index, (data, some, count) in enumerate(zip(images, boxes, counts, strict=True)):
            try:
                pixels.append(crops(data, some, int(count), self.settings))
            except ValueError as error:  # if it were raised, the others would be cut a second time
                return ValueError(f"input 'image', item {index}: {error}")
            except Exception as error:
                return error
        return {"pixels": np.stack(pixels)}
