"""Look for a GPU that CUDA can use on this machine."""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["find_gpu"]

_NAME_BYTES = 256


@cache
def find_gpu() -> str | None:
    """The name of the first GPU the CUDA driver shows; None without a driver or a GPU.

    It asks the driver itself (CUDA Driver API: cuInit, cuDeviceGetCount, cuDeviceGetName), because an installed
    library and an existing device file do not guarantee that a kernel can run.
    CUDA_VISIBLE_DEVICES is respected, as by every program that would run there.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    return name.value.decode(errors="replace")
