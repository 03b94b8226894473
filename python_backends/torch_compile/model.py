"""Serves model.pt2, a network that torch compiled ahead of time (AOTInductor), with Triton's python backend.

The build puts this file and its imports next to the package. Triton's native pytorch backend takes such packages from
26.03 on (platform torch_aoti), and does not batch them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backend_config import ModelError
from backend_model import StandIn
from pytorch_network import Loaded, Opening, open_file
from pytorch_unpacking import unpacking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend_batch import Network
    from pytorch_device import Device

PROCESSOR = Path("/proc/cpuinfo")
X86 = {"avx2": "avx2", "avx512": "avx512f", "avx512_vnni": "avx512_vnni", "amx_tile": "amx_tile"}
"""Extensions as AOTInductor names them -> as the kernel does."""
WANTED = (
    "the version and a processor like those it was compiled with (build it on this machine), and disk space for what"
    " it unpacks to"
)


def open_network(args: dict[str, str]) -> Network:
    """The package of the model version in `args`."""
    return open_file(args, "python", "model.pt2", _load)


def _load(opening: Opening) -> Loaded:
    """The package's function.

    torch._inductor.aoti_load_package does the same after tens of seconds: to warn of another processor it compiles a
    C++ program. On a GPU the package runs without its locks, which are not allowed while a CUDA graph is captured.
    """
    device, path = opening.device, opening.path
    loader = opening.torch._C._aoti.AOTIModelPackageLoader
    alone, index = (False, -1) if device is None else (True, device.place.index)
    try:
        with unpacking():
            _check_device(path, loader.load_metadata_from_package(str(path), "model"), device)
            package = loader(str(path), "model", alone, 1, index)
    except ModelError:
        raise
    except Exception as error:  # RuntimeError mostly, about the machine, the version or the file
        raise opening.refused(error, WANTED) from error
    return Loaded(lambda *tensors: package.boxed_run(list(tensors)))


def _check_device(path: Path, notes: Mapping[str, str], device: Device | None) -> None:
    """Hold the instance's device against the notes that PyTorch puts into a package."""
    built_for, kind = notes["AOTI_DEVICE_KEY"], "cpu" if device is None else "cuda"
    if built_for != kind:
        target = "CPU" if built_for == "cpu" else "GPU"
        raise ModelError(
            f"{path} was compiled for {built_for}, and the instance runs on {kind}: use instance_group kind"
            f" KIND_{target}, or build the package for {kind}"
        )
    if device is None:
        _check_processor(path, notes.get("AOTI_CPU_ISA", ""))
    else:
        _check_card(path, notes.get("AOTI_COMPUTE_CAPABILITY", ""), device)


def _check_card(path: Path, built: str, device: Device) -> None:
    """Kernels for 8.0 run on 8.6, and neither on 9.0 nor the other way round."""
    own = device.capability()
    if built.isdecimal() and not int(built) <= own < int(built) // 10 * 10 + 10:
        raise ModelError(
            f"{path} was compiled for compute capability {int(built) / 10}, and {device.place} has {own / 10}:"
            " build it on a machine with such a GPU"
        )


def _check_processor(path: Path, built: str) -> None:
    """An instruction that an x86 processor lacks would end the process."""
    own = PROCESSOR.read_text().split()
    lacking = [name for name in built.lower().split() if name in X86 and X86[name] not in own]
    if lacking:
        raise ModelError(
            f"{path} was compiled for a processor with {built}, and this one lacks {lacking[0].upper()}: build it on a"
            " machine with such a processor"
        )


class TritonPythonModel(StandIn):
    """One instance of one model: one compiled package in its own process."""

    open_network = staticmethod(open_network)
