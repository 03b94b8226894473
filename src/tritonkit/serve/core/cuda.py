"""CUDA's libraries in a server environment, and whether ONNX Runtime's CUDA provider can be used with them.

`tritonkit server install --gpu` installs them as Python packages, in folders that the dynamic loader does not search.
They are therefore opened by their paths, in this order, before ONNX Runtime: the loader knows an open library by its
name. This module needs only the standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .probe import run_probe

__all__ = ["PROVIDER", "cuda_libraries", "provider_of", "why_no_provider"]

PROVIDER = "libonnxruntime_providers_cuda.so"
"""ONNX Runtime's part for CUDA, which only the wheel onnxruntime-gpu has, next to its library."""

_LIBRARIES = (
    "libcudart.so.13",
    "libnvrtc.so.13",
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libcurand.so.10",
    "libcufft.so.12",
    "libcudnn.so.9",
)
_TRY_S = 60.0
# A process of its own, as the driver's library keeps threads. The provider itself cannot be opened here: while it is
# opened it asks ONNX Runtime, which is not there. `doctor` lets the native backend try it.
_TRY = """
import ctypes, sys
try:
    for library in sys.argv[1:]:
        ctypes.CDLL(library)
    runtime = ctypes.CDLL("libcudart.so.13")
except OSError as error:
    sys.exit(str(error))
count = ctypes.c_int()
code = runtime.cudaGetDeviceCount(ctypes.byref(count))
runtime.cudaGetErrorString.restype = ctypes.c_char_p
if code:
    sys.exit(runtime.cudaGetErrorString(code).decode(errors="replace"))
sys.exit(None if count.value else "CUDA sees no GPU")
"""


def provider_of(environment: Path) -> Path | None:
    """The CUDA provider of an environment; None in one for CPUs."""
    return next(environment.glob(f"lib/python3.*/site-packages/onnxruntime/capi/{PROVIDER}"), None)


def cuda_libraries(environment: Path) -> tuple[Path, ...]:
    """CUDA's libraries of an environment that are to be opened before ONNX Runtime, in this order; none for CPUs."""
    if provider_of(environment) is None:
        return ()
    folders = "lib/python3.*/site-packages/nvidia/*/lib"
    return tuple(file for name in _LIBRARIES for file in list(environment.glob(f"{folders}/{name}"))[:1])


def why_no_provider(environment: Path) -> str:
    """The reason why the CUDA provider of an environment cannot be used: its libraries, the driver, or no GPU.

    It is empty if there is none. The libraries are tried, every time.
    """
    provider = provider_of(environment)
    if provider is None:
        return "ONNX Runtime is the one for CPUs: its CUDA provider is not installed"
    libraries = cuda_libraries(environment)
    if missing := set(_LIBRARIES) - {library.name for library in libraries}:
        return f"CUDA's libraries are incomplete: {', '.join(sorted(missing))}"
    command = [sys.executable, "-IS", "-c", _TRY, *map(str, libraries)]
    try:
        ran = run_probe(command, _TRY_S)
    except OSError as error:
        return f"trying it: {error}"
    if ran.returncode == 0:
        return ""
    return (ran.stderr.strip().splitlines() or [f"trying it ended with exit code {ran.returncode}"])[-1][:500]
