"""Triton adapter of frames: waveform FP32 [length] of a sequence to frames FP32 [frames, size]."""

from __future__ import annotations

import json
from typing import Any

from frames_core import Frames, Settings
from step_support import Arrays, loading, settings_from

START, END = 1, 2  # TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END


class TritonPythonModel:
    """One instance of the step; Triton sends all requests of a sequence to the same instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        with loading(args) as self.step:
            # The step is not told of a sequence that was idle for too long, so there is room for as many of those.
            self.streams = Frames(settings_from(Settings, self.step.parameters), 2 * _most_sequences(args))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests, each of another sequence."""
        return self.step.answer(requests, self._frames, compute=list)

    def _frames(self, request: Any) -> Arrays:
        waveform = self.step.read(request, "waveform")[0]  # of one item, as Triton has it for sequences
        flags, stream = request.flags(), request.correlation_id()
        try:
            frames = self.streams.frames(stream, waveform, start=bool(flags & START), end=bool(flags & END))
        except ValueError as error:
            raise ValueError(f"input 'waveform': {error}") from error
        return {"frames": frames[None]}


def _most_sequences(args: dict[str, str]) -> int:
    """Sequences that Triton opens at a time in this instance."""
    config = json.loads(args["model_config"])
    oldest = config.get("sequence_batching", {}).get("oldest", {})
    return int(oldest.get("max_candidate_sequences") or max(1, config.get("max_batch_size", 0)))
