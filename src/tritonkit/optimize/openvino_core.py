"""OpenVINO as variants and runtimes use it: one door, and its errors in a line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from tritonkit.export.quiet import quiet
from tritonkit.extras import need

__all__ = [
    "PRECISION",
    "PRECISION_ENTRY",
    "convert_module",
    "first_reason",
    "open_core",
    "open_nncf",
]

PRECISION = "INFERENCE_PRECISION_HINT"
"""OpenVINO's property for what to compute in: f32 or bf16."""
PRECISION_ENTRY = ["runtime_options", PRECISION]
"""Where a file of ours says so (rt_info). Left to itself OpenVINO computes in bfloat16 wherever the
processor can; our stand-in for Triton's openvino backend reads this entry, and so do measurements."""

_SILENT = "NNCF_CI"
"""With this set NNCF sends nothing about its use anywhere (nncf/telemetry/wrapper.py); it looks when imported."""


@cache
def open_core() -> Any:
    """The process's openvino.Core; BuildError where the package is not installed."""
    return need("openvino", "optimize").Core()


def open_nncf() -> Any:
    """NNCF, without its progress bars and without its reports over the network."""
    with _environment(_SILENT, "1"), quiet():
        return need("nncf", "optimize")


def convert_module(module: Any, example: dict[str, Any]) -> Any:
    """The openvino.Model of a torch.nn.Module that is traced with an example, without a report over the network."""
    ov = need("openvino", "optimize")
    # openvino.tools.ovc.telemetry_utils: with this set nothing is sent.
    with _environment("CI", "true"), quiet():
        return ov.convert_model(module, example_input=example)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def first_reason(error: Exception) -> str:
    """What went wrong, in a line, without the lines that say where in OpenVINO's source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return " ".join(told or lines)[:400]
