"""Triton adapter of decode_image: image BYTES [1] to pixels FP32 or UINT8 [channels, height, width]."""

from __future__ import annotations

from typing import Any

import numpy as np
from decode_image_core import DTYPES, Settings, decode_image
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's images."""
        return self.step.answer(requests, self._decode, compute=list)

    def _decode(self, request: Any) -> Arrays:
        images = self.step.read(request, "image")[:, 0]  # [batch]
        shape = (len(images), self.settings.channels, self.settings.height, self.settings.width)
        pixels = np.empty(shape, dtype=DTYPES[self.settings.dtype])
        for index, data in enumerate(images):
            try:
                pixels[index] = decode_image(data, self.settings)
            except ValueError as error:
                raise ValueError(f"input 'image', item {index}: {error}") from error
        return {"pixels": pixels}
