"""Triton adapter of decode_image: image BYTES [1] to pixels FP32 or UINT8, and image_size INT64 [2] on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from decode_image_core import DTYPES, Settings, decode_sized, decoded_bytes, fitting
from step_support import Arrays, Busy, loading, settings_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Batch = tuple[np.ndarray, int]  # a request's encoded images, and their bytes decoded


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
            self.limit = self.settings.max_batch_decoded_bytes

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's images one after the other, once all are known to fit."""
        return self.step.answer(requests, self._read, self._decode)

    def _read(self, request: Any) -> Batch:
        images = self.step.read(request, "image")[:, 0]  # [batch]
        count = sum(self._each(images, decoded_bytes))
        if count > self.limit:
            raise ValueError(
                f"input 'image': {len(images)} images of {count} bytes decoded; at most {self.limit}"
                " are taken together (parameter max_batch_decoded_bytes)"
            )
        return images, count

    def _decode(self, batches: list[Batch]) -> list[Arrays | Exception]:
        fits = fitting([count for _, count in batches], self.limit)
        return [
            self._pixels(images) if fit else Busy(f"no room for {count} bytes of images next to the others")
            for (images, count), fit in zip(batches, fits, strict=True)
        ]

    def _pixels(self, images: np.ndarray) -> Arrays | Exception:
        pixels = np.empty((len(images), *self.settings.shape), dtype=DTYPES[self.settings.dtype])
        sizes = np.empty((len(images), 2), dtype=np.int64)
        try:
            for index, (values, size) in enumerate(self._each(images, decode_sized)):
                pixels[index], sizes[index] = values, size
        except Exception as error:  # if it were raised, the others would be decoded a second time
            return error
        return {"pixels": pixels, "image_size": sizes} if self.settings.image_size else {"pixels": pixels}

    def _each(self, images: np.ndarray, do: Callable[[bytes, Settings], Any]) -> Iterator[Any]:
        for index, data in enumerate(images):
            try:
                yield do(data, self.settings)
            except ValueError as error:
                raise ValueError(f"input 'image', item {index}: {error}") from error
