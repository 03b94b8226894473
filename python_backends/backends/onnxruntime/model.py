"""Stand-in for Triton's native `onnxruntime` backend on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "onnxruntime"` ("Python-based backend"). In the `args` it gives,
`model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from backend_config import check_served_here
from backend_model import StandIn
from onnxruntime_config import check_accelerators, model_file
from onnxruntime_network import network_of

if TYPE_CHECKING:
    from backend_batch import Network


def open_network(args: dict[str, str]) -> Network:
    """The session of the model version in `args`, checked against its configuration."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "onnxruntime")
    check_accelerators(config)
    path = model_file(Path(args["model_repository"]), args["model_version"], config)
    return network_of(args["model_name"], path, config)


class TritonPythonModel(StandIn):
    """One instance of one model: one ONNX Runtime session in its own process."""

    open_network = staticmethod(open_network)
