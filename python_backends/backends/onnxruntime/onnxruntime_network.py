"""An ONNX file opened with a configuration, for the stand-in that serves it and for a build that tries it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime as ort
from backend_batch import Network
from backend_config import ModelError, configured_dims, is_batched
from backend_padding import read_padding
from onnxruntime_config import check_signature, register_operators, run_options, session_options, tensor_specs
from onnxruntime_engine import Session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def network_of(name: str, path: Path, config: Mapping[str, Any]) -> Network:
    """The session of a file, checked against the configuration; ModelError if they do not fit."""
    options = session_options(config)
    register_operators(options, config, path.parent)
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own classes have no common root
        raise ModelError(f"ONNX Runtime cannot load {path}: {error}") from error
    inputs = tensor_specs(session.get_inputs())
    outputs = tensor_specs(session.get_outputs())
    optional = tensor_specs(session.get_overridable_initializers())
    check_signature(config, inputs, outputs, optional)
    scalars = {entry["name"]: configured_dims(entry) for entry in config["output"] if not outputs[entry["name"]].dims}
    engine = Session(session, run_options(config))
    padding = read_padding(config, inputs, outputs)
    return Network(name, engine, inputs, is_batched(config), optional, scalars, padding)
