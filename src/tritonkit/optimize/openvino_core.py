"""OpenVINO as variants and runtimes use it: one door, and its errors in a line."""

from __future__ import annotations

from functools import cache
from typing import Any

from tritonkit.extras import need

__all__ = ["PRECISION", "PRECISION_ENTRY", "first_reason", "open_core"]

PRECISION = "INFERENCE_PRECISION_HINT"
"""OpenVINO's property for what to compute in: f32 or bf16."""
PRECISION_ENTRY = ["runtime_options", PRECISION]
"""Where a file of ours says so (rt_info). Left to itself OpenVINO computes in bfloat16 wherever the
processor can; our stand-in for Triton's openvino backend reads this entry, and so do measurements."""


@cache
def open_core() -> Any:
    """The process's openvino.Core; BuildError where the package is not installed."""
    return need("openvino", "optimize").Core()


def first_reason(error: Exception) -> str:
    """What went wrong, in a line, without the lines that say where in OpenVINO's source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return " ".join(told or lines)[:400]
