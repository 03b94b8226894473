"""`llm-fp32`, `-bf16`, `-int8` and `-int4`: a causal language model for OpenVINO GenAI's paged attention."""

from __future__ import annotations

from pathlib import Path

from tritonkit.extras import need
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.llm.convert import Weights, convert_checkpoint
from tritonkit.repository.optimize.llm.quality import measure_language as measure
from tritonkit.repository.optimize.openvino_core import open_nncf

__all__ = ["make", "measure"]


def make(job: Job, folder: Path, *, weights: Weights) -> tuple[str, ...]:
    """Write the network and the other files that a server needs.

    Raises:
        BuildError: a package is missing, which is noticed before minutes of training; or an error of
            `convert_checkpoint`.
    """
    for module in ("openvino", "openvino_genai"):
        need(module, "llm")
    if weights in ("int8", "int4"):
        open_nncf()
    return convert_checkpoint(job.checkpoint, folder, weights)
