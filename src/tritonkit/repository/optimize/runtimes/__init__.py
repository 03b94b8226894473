"""The engines that run variants as they will be served: a table of modules, each with an `open_runner`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tritonkit.repository.optimize.runner import OperatorTime, Runner
from tritonkit.repository.optimize.runtimes import (
    litert,
    onnxruntime_cpu,
    openvino_cpu,
    pytorch,
    tensorrt_gpu,
    treelite_cpu,
)

__all__ = ["RUNTIMES", "OperatorTime", "Runner"]

RUNTIMES: dict[str, Callable[[Path, int, str], Runner]] = {
    "onnxruntime": onnxruntime_cpu.open_runner,
    "torch": pytorch.open_runner,
    "tensorrt": tensorrt_gpu.open_runner,
    "litert": litert.open_runner,
    "treelite": treelite_cpu.open_runner,
    "openvino": openvino_cpu.open_runner,
}
"""Functions that open the variant in a folder, for a number of threads; errors name their third argument."""
