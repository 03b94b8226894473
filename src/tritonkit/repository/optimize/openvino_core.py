"""The only access to OpenVINO for variants and runtimes, with its errors in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet

__all__ = [
    "PRECISION",
    "PRECISION_ENTRY",
    "Precision",
    "compile_for_cpu",
    "convert_module",
    "first_reason",
    "open_core",
    "open_nncf",
]

PRECISION = "INFERENCE_PRECISION_HINT"
"""OpenVINO's property for the precision of the computation: f32 or bf16."""
PRECISION_ENTRY = ["runtime_options", PRECISION]
"""The place of the precision in tritonkit's files (rt_info). Both kinds of openvino backend read this entry, and so do
measurements. OpenVINO itself does not: without a hint it computes in bfloat16 wherever the processor can."""
Precision = Literal["f32", "bf16"]

_SILENT = "NNCF_CI"
"""Environment variable that turns off NNCF's telemetry (nncf/telemetry/wrapper.py); NNCF reads it when imported."""


@cache
def open_core() -> Any:
    """The process's openvino.Core; BuildError where the package is not installed."""
    return need("openvino", "optimize").Core()


def compile_for_cpu(model: Any, threads: int, precision: str | None = None, **properties: Any) -> Any:
    """Compile an openvino.Model for the CPU: the only place where the build does so.

    Args:
        precision: the precision of the computation; by default the one recorded in the model's file, else FP32.
        properties: further properties of OpenVINO.
    """
    if precision is None and model.has_rt_info(PRECISION_ENTRY):
        precision = model.get_rt_info(PRECISION_ENTRY).astype(str)
    given = {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False, PRECISION: precision or "f32"}
    return open_core().compile_model(model, "CPU", given | properties)


def open_nncf() -> Any:
    """NNCF, without its progress bars and its telemetry."""
    with _environment(_SILENT, "1"), quiet():
        return need("nncf", "optimize")


def convert_module(module: Any, example: dict[str, Any]) -> Any:
    """The openvino.Model of a torch.nn.Module that is traced with an example, without telemetry."""
    ov = need("openvino", "optimize")
    # With this set, no telemetry is sent (openvino.tools.ovc.telemetry_utils).
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
    """The reason of an error in one line, without the lines that name locations in OpenVINO's source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return " ".join(reasons or lines)[:400]
