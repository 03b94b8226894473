"""Serves model.pt2, a network that torch compiled ahead of time (AOTInductor), with Triton's python backend.

The build puts this file and its imports next to the package. Triton's native pytorch backend takes such packages from
26.03 on (platform torch_aoti), and does not batch them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils
from backend_batch import Network
from backend_config import ModelError, check_served_here, cores, is_batched
from backend_model import StandIn
from pytorch_config import model_file, positions, read_options, tensor_specs
from pytorch_device import open_device
from pytorch_engine import Function, load_torch, reason
from pytorch_gpu import engine_for

if TYPE_CHECKING:
    from pytorch_device import Device


def open_network(args: dict[str, str]) -> Network:
    """The package of the model version in `args`."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "python", ("CPU", "GPU"))
    batched = is_batched(config)
    inputs = tensor_specs(config, "input", batched)
    outputs = tensor_specs(config, "output", batched)
    options = read_options(config)
    # default_model_filename names the model.py, so it does not count here.
    path = model_file(Path(args["model_repository"]), args["model_version"], {}, "model.pt2")
    torch = load_torch(replace(options, intra_op=options.intra_op or _share(config)))
    torch.backends.cudnn.enabled = options.cudnn
    device = open_device(torch, args)
    package = _load(torch, path, device)
    function = Function(torch, package, positions(list(inputs), ()), positions(list(outputs), ()))
    engine = engine_for(function, device, config, inputs, pb_utils.Logger.log_info, options.cache_cleaning)
    return Network(args["model_name"], engine, inputs, batched)


def _load(torch: Any, path: Path, device: Device | None) -> Any:
    """The package; on a GPU without AOTInductor's locks, which are not allowed while a CUDA graph is captured."""
    place = {} if device is None else {"run_single_threaded": True, "device_index": device.place.index}
    try:
        built_for = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(str(path), "model")
        _check_device(path, built_for["AOTI_DEVICE_KEY"], "cpu" if device is None else "cuda")
        return torch._inductor.aoti_load_package(str(path), **place)
    except ModelError:
        raise
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{path}: {reason(torch, error)}") from error
    except Exception as error:  # RuntimeError mostly, about the machine, the version or the file
        raise ModelError(
            f"PyTorch {torch.__version__} cannot load {path}: {str(error).splitlines()[0]};"
            " wanted the version and a processor like those it was compiled with: build it on this machine"
        ) from error


def _check_device(path: Path, built_for: str, kind: str) -> None:
    if built_for != kind:
        target = "cpu" if built_for == "cpu" else "gpu"
        raise ModelError(
            f"{path} was compiled for {built_for}, and the instance runs on {kind}: use instance_group kind"
            f" KIND_{target.upper()}, or build the package for {kind}"
        )


def _share(config: dict[str, Any]) -> int:
    """Threads of one instance: its part of the cores."""
    instances = sum(int(group.get("count", 1)) for group in config.get("instance_group", []))
    return max(1, cores() // max(1, instances))


class TritonPythonModel(StandIn):
    """One instance of one model: one compiled package in its own process."""

    open_network = staticmethod(open_network)
