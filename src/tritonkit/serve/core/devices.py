"""The NVIDIA driver of this machine and the GPUs that CUDA may use, as the driver itself reports them.

A process of its own asks the driver, because its libraries keep threads, may end the process, and may hang.
CUDA_VISIBLE_DEVICES counts, as it does for a server. This module needs only the standard library: NVIDIA's Python
package would be one more for the image, for six functions.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["CUDA", "DRIVER", "Device", "Driver", "find_driver"]

CUDA = (13, 0)
"""The oldest CUDA of a driver that ONNX Runtime's CUDA provider of the GPU environment runs on."""

DRIVER = "580"
"""The driver that brought it."""

_ASK_S = 60.0
"""A driver that no process keeps loaded takes some seconds for each GPU."""
_TEXT = 256
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_PROCESSES = 64
_KERNEL = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Device:
    """A GPU as CUDA numbers it.

    Args:
        name, uuid: the driver's.
        memory_bytes: all of its memory.
        free_bytes: what no process has; None if the driver does not say.
        capability: the compute capability, such as 9.0.
        mig: whether it is a part of a GPU, or a GPU that is divided into parts (MIG).
        holders: the processes that hold its memory, each with its bytes.
    """

    name: str
    uuid: str
    memory_bytes: int
    free_bytes: int | None
    capability: str
    mig: bool = False
    holders: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Driver:
    """The driver.

    Args:
        version: such as 580.159.04; empty if there is none or it is unknown.
        cuda: the newest CUDA that it runs; (0, 0) without a driver.
        devices: the GPUs that CUDA may use, in its order.
        wrong: the reason why there are none; empty if there are.
        hangs: whether it gave no answer in time.
    """

    version: str = ""
    cuda: tuple[int, int] = (0, 0)
    devices: tuple[Device, ...] = ()
    wrong: str = ""
    hangs: bool = False

    @property
    def too_old(self) -> str:
        """The reason why the GPU environment cannot run on it; empty if it can."""
        if not self.devices or self.cuda >= CUDA:
            return ""
        return f"the driver {self.version or '(version unknown)'} runs CUDA {_dotted(self.cuda)} at most"


def find_driver() -> Driver:
    """Ask the driver, in a process of its own: this file, which therefore imports nothing of its package before."""
    from .probe import run_probe

    try:
        ran = run_probe([sys.executable, "-IS", __file__], _ASK_S)
    except TimeoutError as error:
        return Driver(_kernel_version(), wrong=f"the NVIDIA driver hangs: {error}", hangs=True)
    except OSError as error:
        return Driver(_kernel_version(), wrong=f"the NVIDIA driver cannot be asked: {error}")
    try:
        facts = json.loads(ran.stdout)
    except ValueError:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        return Driver(_kernel_version(), wrong=f"the NVIDIA driver cannot be asked: {last[:300]}")
    devices = tuple(Device(**{**one, "holders": tuple(map(tuple, one["holders"]))}) for one in facts.pop("devices"))
    return Driver(**{**facts, "cuda": tuple(facts["cuda"])}, devices=devices)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _kernel_version() -> str:
    """The version of the kernel's module, which is there in a container without the driver's libraries, too."""
    try:
        version = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", _KERNEL.read_text())
    except OSError:
        return ""
    return version[0] if version else ""


def _ask() -> Driver:
    """The answers of the driver's libraries (CUDA Driver API; NVML for what costs no context)."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        version = _kernel_version()
        there = f"driver {version} is loaded, and its library cannot be" if version else "there is no NVIDIA driver"
        return Driver(version=version, wrong=f"{there} ({error})")
    version_number, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version_number))
    runs = (version_number.value // 1000, version_number.value % 1000 // 10)
    nvml = _open_nvml()
    version = _text(nvml.nvmlSystemGetDriverVersion, _TEXT) if nvml else _kernel_version()
    wrong = _error(cuda, cuda.cuInit(0)) or _error(cuda, cuda.cuDeviceGetCount(ctypes.byref(count)))
    if wrong or not count.value:
        return Driver(version, runs, wrong=f"CUDA sees no GPU ({wrong or 'none is visible to it'})")
    return Driver(version, runs, tuple(_device(cuda, nvml, number) for number in range(count.value)))


def _error(cuda: ctypes.CDLL, code: int) -> str:
    """CUDA's name of an error; empty for none."""
    name = ctypes.c_char_p()
    if code and cuda.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value:
        return name.value.decode()
    return f"error {code}" if code else ""


def _text(function: Any, size: int, *before: Any) -> str:
    buffer = ctypes.create_string_buffer(size)
    return "" if function(*before, buffer, size) else buffer.value.decode(errors="replace")


def _device(cuda: ctypes.CDLL, nvml: ctypes.CDLL | None, number: int) -> Device:
    device, size = ctypes.c_int(), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    for attribute, value in ((_MAJOR, major), (_MINOR, minor)):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    name = ctypes.create_string_buffer(_TEXT)
    cuda.cuDeviceGetName(name, _TEXT, device)
    raw = (ctypes.c_ubyte * 16)()
    # The second version came with driver 470.
    (getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid)(ctypes.byref(raw), device)
    digits = bytes(raw).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    free, mig, holders = _usage(nvml, uuid) if nvml else (None, False, ())
    capability = f"{major.value}.{minor.value}"
    return Device(name.value.decode(errors="replace"), uuid, size.value, free, capability, mig, holders)


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_v2_t`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def _open_nvml() -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        return None if nvml.nvmlInit_v2() else nvml
    except (OSError, AttributeError):
        return None


def _usage(nvml: ctypes.CDLL, uuid: str) -> tuple[int | None, bool, tuple[tuple[int, int], ...]]:
    """Free bytes of a GPU, whether it is divided, and the processes that hold its memory."""
    handle = ctypes.c_void_p()
    for kind in ("GPU", "MIG"):
        if nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode(), ctypes.byref(handle)) == 0:
            break
    else:
        return None, False, ()
    memory, now, later = _Memory(), ctypes.c_uint(), ctypes.c_uint()
    free = None if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) else memory.free
    divided = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(later)) == 0 and now.value == 1
    count, processes = ctypes.c_uint(_PROCESSES), (_Process * _PROCESSES)()
    # Drivers before 510 lack the function; they are to be called too old, not broken.
    running = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if running is None or running(handle, ctypes.byref(count), processes):
        count.value = 0
    # The driver gives the largest number where it does not know a process's memory.
    holders = tuple((one.pid, one.used if one.used < 1 << 63 else 0) for one in processes[: count.value])
    return free, kind == "MIG" or divided, holders


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_ask())))
