"""Stand-in for Triton's native `onnxruntime` backend on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "onnxruntime"` ("Python-based backend"). In the `args` it gives,
`model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime as ort
from backend_batch import Network
from backend_config import ModelError, check_served_here, configured_dims, is_batched
from backend_model import StandIn
from backend_padding import read_padding
from onnxruntime_config import (
    check_accelerators,
    check_signature,
    model_file,
    run_options,
    session_options,
    tensor_specs,
)
from onnxruntime_engine import Session


def open_network(args: dict[str, str]) -> Network:
    """The session of the model version in `args`, checked against its configuration."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"], "onnxruntime")
    check_accelerators(config)
    path = model_file(Path(args["model_repository"]), args["model_version"], config)
    options = session_options(config)
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own classes have no common root
        raise ModelError(f"ONNX Runtime cannot load {path}: {error}") from error
    inputs = tensor_specs(session.get_inputs())
    outputs = tensor_specs(session.get_outputs())
    optional = tensor_specs(session.get_overridable_initializers())
    check_signature(config, inputs, outputs, optional)
    scalars = {
        entry["name"]: configured_dims(entry)
        for entry in config["output"]
        if not outputs[entry["name"]].dims
    }
    engine = Session(session, run_options(config))
    padding = read_padding(config, inputs, outputs)
    return Network(
        args["model_name"], engine, inputs, is_batched(config), optional, scalars, padding
    )


class TritonPythonModel(StandIn):
    """One instance of one model: one ONNX Runtime session in its own process."""

    open_network = staticmethod(open_network)
