"""Triton adapter of decode_image: image BYTES [1] to pixels FP32 or UINT8, and image_size INT64 [2] on demand."""

from __future__ import annotations

from typing import Any

import numpy as np
from decode_image_batch import Batch, answers, batch_of, naming
from decode_image_core import DTYPES, Settings, decode_sized
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's images one after the other, once all are known to fit."""
        return self.step.answer(requests, self._read, self._decode)

    def _read(self, request: Any) -> Batch:
        return batch_of(self.step.read(request, "image")[:, 0], self.settings)

    def _decode(self, batches: list[Batch]) -> list[Arrays | Exception]:
        return answers(batches, self.settings.max_batch_decoded_bytes, self._pixels)

    def _pixels(self, images: np.ndarray) -> Arrays:
        pixels = None
        sizes = np.empty((len(images), 2), dtype=np.int64)
        for item, data in enumerate(images):
            with naming(item):
                one, sizes[item] = decode_sized(data, self.settings)
                if len(images) == 1:  # no copy
                    pixels = one[None]
                    break
                if pixels is None:  # the first has the shape of all
                    pixels = np.empty((len(images), *one.shape), dtype=one.dtype)
                if one.shape != pixels.shape[1:]:
                    raise ValueError(
                        f"resized it is {list(one.shape)}, and the first image {list(pixels.shape[1:])}; wanted one"
                        " size in a request: send this image in one of its own"
                    )
                pixels[item] = one
        if pixels is None:
            pixels = np.empty((0, *self.settings.shape), dtype=DTYPES[self.settings.dtype])
        return {"pixels": pixels, "image_size": sizes} if self.settings.image_size else {"pixels": pixels}
