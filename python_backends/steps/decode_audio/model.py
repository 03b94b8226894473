"""Triton adapter of decode_audio: audio BYTES [1] to waveform FP32 [length] and samples INT32 [1]."""

from __future__ import annotations

from typing import Any

from decode_audio_core import Settings, decode_audio, pad
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's files one after the other; pad each request to its own length."""
        return self.step.answer(requests, self._decode, compute=list)

    def _decode(self, request: Any) -> Arrays:
        waveforms = []
        for index, data in enumerate(self.step.read(request, "audio")[:, 0]):
            try:
                waveforms.append(decode_audio(data, self.settings))
            except ValueError as error:
                raise ValueError(f"input 'audio', item {index}: {error}") from error
        return pad(waveforms, self.settings)
