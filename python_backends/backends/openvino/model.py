"""Stand-in for Triton's native `openvino` backend on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "openvino"` ("Python-based backend"). In the `args` it gives,
`model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import triton_python_backend_utils as pb_utils
from backend_config import check_served_here
from backend_model import StandIn
from openvino_config import model_file
from openvino_engine import make_engine
from openvino_opening import network_of

if TYPE_CHECKING:
    from backend_batch import Network


def open_network(args: dict[str, str]) -> Network:
    """The network of the model version in `args`, checked against its configuration, compiled."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "openvino")
    path = model_file(Path(args["model_repository"]), args["model_version"], config)
    return network_of(args["model_name"], path, config, make_engine, pb_utils.Logger.log_info)


class TritonPythonModel(StandIn):
    """One instance of one model: one network in OpenVINO in its own process."""

    open_network = staticmethod(open_network)
