"""Triton adapter of log_mel: waveform FP32 [length] to features FP32 and their number of frames INT32 [1]."""

from __future__ import annotations

from typing import Any

from log_mel_core import LogMel, Settings
from step_support import Arrays, loading, settings_from


class TritonPythonModel:
    """One instance of the step."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            self.log_mel = LogMel(settings_from(Settings, self.step.parameters))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Compute each request alone, because their lengths differ."""
        return self.step.answer(requests, self._features, compute=list)

    def _features(self, request: Any) -> Arrays:
        waveforms = self.step.read(request, "waveform")  # [batch, length]
        samples = self.step.read_optional(request, "samples")  # [batch, 1]
        counts = [waveforms.shape[1]] * len(waveforms) if samples is None else samples[:, 0].tolist()
        try:
            features, frames = self.log_mel.features(waveforms, counts)
        except ValueError as error:
            raise ValueError(f"input 'waveform', {error}") from error
        return {"features": features, "frames": frames}
