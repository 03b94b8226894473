"""Stand-in for Triton's native `openvino` backend on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "openvino"` ("Python-based backend"). In the `args` it gives,
`model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import triton_python_backend_utils as pb_utils
from backend_batch import Network
from backend_config import check_served_here, is_batched
from backend_model import StandIn
from backend_padding import read_padding
from openvino import Core
from openvino_config import check_device, model_file, properties
from openvino_engine import Forms, make_engine
from openvino_network import input_specs, output_specs, precision, read_network, scalars


def open_network(args: dict[str, str]) -> Network:
    """The network of the model version in `args`, checked against its configuration, compiled."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "openvino")
    check_device(config)
    path = model_file(Path(args["model_repository"]), args["model_version"], config)
    core = Core()
    model = read_network(core, path, config)
    options = properties(config, precision(model))
    engine = make_engine(Forms(core, model, config, options), config)
    said = ", ".join(f"{key} {value}" for key, value in options.items())
    pb_utils.Logger.log_info(f"model '{args['model_name']}': {said}; {engine.choice}")
    inputs = input_specs(model, config)
    padding = read_padding(config, inputs, output_specs(model, config))
    return Network(
        args["model_name"],
        engine,
        inputs,
        is_batched(config),
        scalars=scalars(model, config),
        padding=padding,
    )


class TritonPythonModel(StandIn):
    """One instance of one model: one network in OpenVINO in its own process."""

    open_network = staticmethod(open_network)
