"""`llm-fp32`, `-int8` and `-int4`: a causal language model for OpenVINO GenAI's paged attention."""

from __future__ import annotations

from pathlib import Path

from tritonkit.export.job import Job
from tritonkit.optimize.llm.convert import Weights, convert_checkpoint
from tritonkit.optimize.llm.quality import measure_language as measure

__all__ = ["make", "measure"]


def make(job: Job, folder: Path, *, weights: Weights) -> tuple[str, ...]:
    """The network and what a server needs beside it."""
    return convert_checkpoint(job.checkpoint, folder, weights)
