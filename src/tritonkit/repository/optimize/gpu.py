"""Look for a GPU that CUDA can use on this machine."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

__all__ = ["CudaEnvironment", "described_gpu", "find_capability", "find_gpu", "why_no_gpu"]

_NAME_BYTES = 256
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_DRIVER = Path("/sys/module/nvidia/version")
_ASK_S = 60.0
"""A driver that no process keeps loaded takes some seconds for each GPU."""


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


def find_gpu() -> str | None:
    """The name of the first GPU the CUDA driver shows; None without a driver or a GPU.

    It asks the driver itself (CUDA Driver API: cuInit, cuDeviceGetCount, cuDeviceGetName), because an installed
    library and an existing device file do not guarantee that a kernel can run.
    CUDA_VISIBLE_DEVICES is respected, as by every program that would run there.
    """
    return _first_gpu().name or None


def find_capability() -> str:
    """The compute capability of the first GPU, such as 9.0; empty without one."""
    return _first_gpu().capability


def why_no_gpu() -> str:
    """The reason why there is none; empty if there is one."""
    return _first_gpu().wrong


@dataclass(frozen=True)
class _Gpu:
    name: str = ""
    capability: str = ""
    wrong: str = ""


@cache
def _first_gpu() -> _Gpu:
    """Ask the driver once, in a process of its own: this file, which therefore imports nothing of its package.

    A process inside a system call of a driver that hangs cannot be killed, so nothing waits for its end.
    """
    command = [sys.executable, "-IS", __file__]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(timeout=_ASK_S)
        return _Gpu(**json.loads(output))
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        threading.Thread(target=process.wait, name="abandoned-probe", daemon=True).start()
        return _Gpu(wrong=f"the NVIDIA driver hangs: no answer within {_ASK_S:g} s")
    except ValueError:
        return _Gpu(wrong=f"the NVIDIA driver cannot be asked: exit code {process.returncode}")


def _ask() -> _Gpu:
    """The answers of the driver about its first device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return _Gpu(wrong=f"there is no NVIDIA driver ({error})")
    count, device = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if (
        driver.cuInit(0)
        or driver.cuDeviceGetCount(ctypes.byref(count))
        or count.value == 0
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, _NAME_BYTES, device)
    ):
        return _Gpu(wrong="CUDA sees no GPU")
    values = [ctypes.c_int(), ctypes.c_int()]
    for attribute, value in zip(_CAPABILITY, values, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return _Gpu(name.value.decode(errors="replace"), f"{values[0].value}.{values[1].value}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_ask())))
