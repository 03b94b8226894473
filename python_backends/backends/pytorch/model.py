"""Stand-in for Triton's native `pytorch` backend (TorchScript files) on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "pytorch"` ("Python-based backend").
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend_batch import Network
from backend_config import ModelError, check_served_here, is_batched
from backend_model import StandIn, log_info
from backend_padding import read_padding
from pytorch_config import model_file, positions, read_options, tensor_specs
from pytorch_device import open_device
from pytorch_engine import Function, load_torch, reason
from pytorch_gpu import engine_for

if TYPE_CHECKING:
    from pytorch_config import Options


def open_network(args: dict[str, str]) -> Network:
    """The TorchScript module of the model version in `args`, checked against its configuration."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "pytorch", ("CPU", "GPU"))
    if config.get("platform") == "torch_aoti":
        raise ModelError(
            "platform torch_aoti found; this stand-in of the pytorch backend loads TorchScript only:"
            " serve a compiled package by a model.py, as the variant torch-compile does"
        )
    batched = is_batched(config)
    inputs = tensor_specs(config, "input", batched)
    outputs = tensor_specs(config, "output", batched)
    options = read_options(config)
    path = model_file(Path(args["model_repository"]), args["model_version"], config, "model.pt")
    torch = load_torch(options)
    _set_executor(torch, options)
    device = open_device(torch, args)
    try:
        module = torch.jit.load(path, map_location="cpu" if device is None else device.place)
    except Exception as error:  # RuntimeError mostly; a file that is not an archive gives others
        raise ModelError(f"PyTorch cannot load {path}: {reason(torch, error, 0)}") from error
    arguments = [argument.name for argument in module.forward.schema.arguments[1:]]
    function = Function(
        torch, module, positions(list(inputs), arguments), positions(list(outputs), ()), options.inference_mode
    )
    engine = engine_for(function, device, config, inputs, log_info, options.cache_cleaning)
    scalars = {} if batched else {name: spec.dims for name, spec in outputs.items() if len(spec.dims) < 2}
    padding = read_padding(config, inputs, outputs)
    return Network(args["model_name"], engine, inputs, batched, scalars=_of_one(scalars), padding=padding)


def _of_one(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Results of one element as [1], because Triton has no rank 0."""
    return {name: dims for name, dims in shapes.items() if dims in ((), (1,))}


def _set_executor(torch: Any, options: Options) -> None:
    """TorchScript's own switches, unchanged unless the configuration sets them."""
    torch.backends.cudnn.enabled = options.cudnn
    torch._C._set_graph_executor_optimize(options.optimized)
    if options.profiling is not None:
        torch._C._jit_set_profiling_mode(options.profiling)
    if options.executor is not None:
        torch._C._jit_set_profiling_executor(options.executor)
    if options.tensor_fuser is not None:
        torch._C._jit_set_texpr_fuser_enabled(options.tensor_fuser)


class TritonPythonModel(StandIn):
    """One instance of one model: one TorchScript module in its own process."""

    open_network = staticmethod(open_network)
