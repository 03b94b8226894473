"""Stand-in for Triton's native `pytorch` backend (TorchScript files) on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "pytorch"` ("Python-based backend").
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from backend_config import ModelError
from backend_model import StandIn
from pytorch_network import Loaded, Opening, open_file

if TYPE_CHECKING:
    from backend_batch import Network
    from pytorch_config import Options


def open_network(args: dict[str, str]) -> Network:
    """The TorchScript module of the model version in `args`, checked against its configuration."""
    if json.loads(args["model_config"]).get("platform") == "torch_aoti":
        raise ModelError(
            "platform torch_aoti found; this stand-in of the pytorch backend loads TorchScript only:"
            " serve a compiled package by a model.py, as the variant torch-compile does"
        )
    return open_file(args, "pytorch", "model.pt", _load)


def _load(opening: Opening) -> Loaded:
    torch = opening.torch
    _set_executor(torch, opening.options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, and what this backend is for
            module = torch.jit.load(opening.path, map_location=opening.place)
    except Exception as error:  # RuntimeError mostly; a file that is not an archive gives others
        raise opening.refused(error) from error
    return Loaded(module, [argument.name for argument in module.forward.schema.arguments[1:]])


def _set_executor(torch: Any, options: Options) -> None:
    """TorchScript's own switches, unchanged unless the configuration sets them."""
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
