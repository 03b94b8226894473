"""Look for a GPU that CUDA can use on this machine."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["CudaEnvironment", "described_gpu", "find_capability", "find_gpu"]

_NAME_BYTES = 256
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_DRIVER = Path("/sys/module/nvidia/version")


@dataclass(frozen=True)
class CudaEnvironment:
    """The server environment whose ONNX Runtime has the CUDA provider, and the GPU that it runs on.

    Args:
        python: its interpreter.
        libraries: CUDA's libraries, to be opened in this order before ONNX Runtime.
        gpu: the GPU's name and the driver's version.
    """

    python: Path
    libraries: tuple[str, ...]
    gpu: str


def described_gpu() -> str | None:
    """The first GPU's name with the driver's version; None without a GPU."""
    gpu = find_gpu()
    return f"{gpu}, driver {_driver_version()}" if gpu else None


def _driver_version() -> str:
    try:
        return _DRIVER.read_text().strip()
    except OSError:
        return "unknown"


@cache
def find_gpu() -> str | None:
    """The name of the first GPU the CUDA driver shows; None without a driver or a GPU.

    It asks the driver itself (CUDA Driver API: cuInit, cuDeviceGetCount, cuDeviceGetName), because an installed
    library and an existing device file do not guarantee that a kernel can run.
    CUDA_VISIBLE_DEVICES is respected, as by every program that would run there.
    """
    first = _first_device()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if first is None or first[0].cuDeviceGetName(name, _NAME_BYTES, first[1]):
        return None
    return name.value.decode(errors="replace")


def find_capability() -> str:
    """The compute capability of the first GPU, such as 9.0; empty without one."""
    first = _first_device()
    if first is None:
        return ""
    driver, device = first
    values = [ctypes.c_int(), ctypes.c_int()]
    for attribute, value in zip(_CAPABILITY, values, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return f"{values[0].value}.{values[1].value}"


def _first_device() -> tuple[ctypes.CDLL, ctypes.c_int] | None:
    """The driver and its first device; None without a driver or a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None
    return None if driver.cuDeviceGet(ctypes.byref(device), 0) else (driver, device)
