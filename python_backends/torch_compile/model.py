"""Serves model.pt2, a network that torch compiled ahead of time (AOTInductor), with Triton's python backend.

The build puts this file and its imports next to the package. Triton's native pytorch backend takes such packages from
26.03 on (platform torch_aoti), and does not batch them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend_batch import Network
from backend_config import ModelError, check_served_here, cores, is_batched
from backend_model import StandIn
from pytorch_config import model_file, positions, read_options, tensor_specs
from pytorch_engine import Function, load_torch


def open_network(args: dict[str, str]) -> Network:
    """The package of the model version in `args`."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "python")
    batched = is_batched(config)
    inputs = tensor_specs(config, "input", batched)
    outputs = tensor_specs(config, "output", batched)
    options = read_options(config)
    # default_model_filename names the model.py, so it does not count here.
    path = model_file(Path(args["model_repository"]), args["model_version"], {}, "model.pt2")
    torch = load_torch(replace(options, intra_op=options.intra_op or _share(config)))
    try:
        package = torch._inductor.aoti_load_package(str(path))
    except Exception as error:  # RuntimeError mostly, about the machine, the version or the file
        raise ModelError(
            f"PyTorch {torch.__version__} cannot load {path}: {str(error).splitlines()[0]};"
            " wanted the version and a processor like those it was compiled with: build it on this machine"
        ) from error
    engine = Function(torch, package, positions(list(inputs), ()), positions(list(outputs), ()))
    return Network(args["model_name"], engine, inputs, batched)


def _share(config: dict[str, Any]) -> int:
    """Threads of one instance: its part of the cores."""
    instances = sum(int(group.get("count", 1)) for group in config.get("instance_group", []))
    return max(1, cores() // max(1, instances))


class TritonPythonModel(StandIn):
    """One instance of one model: one compiled package in its own process."""

    open_network = staticmethod(open_network)
