"""TensorRT for ONNX Runtime's provider of that name: its libraries, and the folder where engines are kept.

NVIDIA's packages put the libraries into a server environment, in a folder that the dynamic loader does not search; a
machine may also have them where it does. The native backend opens them before the provider, when a model needs it. This
module needs only the standard library.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .cuda import cuda_libraries
from .probe import run_probe

__all__ = ["CACHE_VARIABLE", "PACKAGE", "engines_folder", "has_provider", "tensorrt_libraries", "why_no_tensorrt"]

CACHE_VARIABLE = "TRITONKIT_TENSORRT_CACHE"
"""The environment variable that names the folder for engines, such as a volume."""
PACKAGE = "tensorrt-cu13-libs>=10.13,<11"
"""The package with TensorRT 10 for CUDA 13. PyPI has a program that fetches it from NVIDIA's own index."""

_PROVIDER = "libonnxruntime_providers_tensorrt.so"
_LIBRARIES = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
_OPTIONAL = "libnvinfer_plugin.so.10"
"""The provider does without, unless a network has one of its operators."""
_TRY_S = 120.0
# A process of its own, as these libraries bring CUDA along. The provider cannot be opened without ONNX Runtime.
_TRY = """
import ctypes, sys
try:
    for library in sys.argv[1:]:
        ctypes.CDLL(library)
except OSError as error:
    sys.exit(str(error))
"""


def has_provider(environment: Path) -> bool:
    """Whether the environment's ONNX Runtime has the provider."""
    return any(environment.glob(f"lib/python3.*/site-packages/onnxruntime/capi/{_PROVIDER}"))


def tensorrt_libraries(environment: Path) -> tuple[str, ...]:
    """TensorRT's libraries, to be opened in this order: paths in the environment, else names for the loader to find."""
    files = {name: _library(environment, name) for name in _LIBRARIES}
    return tuple(str(file or name) for name, file in files.items() if file or name != _OPTIONAL)


def _library(environment: Path, name: str) -> Path | None:
    return next(environment.glob(f"lib/python3.*/site-packages/tensorrt_libs/{name}"), None)


def why_no_tensorrt(environment: Path) -> str:
    """The reason why an environment's ONNX Runtime cannot use TensorRT, empty if there is none.

    The libraries are tried, every time.
    """
    if not has_provider(environment):
        return f"the environment's ONNX Runtime has no {_PROVIDER}"
    libraries = (*map(str, cuda_libraries(environment)), *tensorrt_libraries(environment))
    try:
        ran = run_probe([sys.executable, "-IS", "-c", _TRY, *libraries], _TRY_S)
    except OSError as error:
        return f"trying it: {error}"
    if ran.returncode == 0:
        return ""
    return (ran.stderr.strip().splitlines() or [f"trying it ended with exit code {ran.returncode}"])[-1][:500]


def engines_folder() -> Path | None:
    """The folder for engines that CACHE_VARIABLE names, if it is set."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).absolute() if named else None
