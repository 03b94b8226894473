"""Stand-in for Triton's native `onnxruntime` backend on a server that has only `python`.

Triton finds this folder under the backend's name in its backend directory and runs it for every
model whose config says `backend: "onnxruntime"` ("Python-based backend"). In the `args` it gives,
`model_repository` is the folder of the model itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from onnxruntime_batch import Arrays, Network, Request, RequestError
from onnxruntime_config import (
    ModelError,
    check_served_here,
    check_signature,
    configured_dims,
    model_file,
    run_options,
    session_options,
    tensor_specs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class TritonPythonModel:
    """One instance of one model: one ONNX Runtime session in its own process."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the session; raises TritonModelException where the model cannot be served."""
        try:
            self.network = open_network(args)
        except ModelError as refused:
            message = f"model '{args['model_name']}': {refused}"
            raise pb_utils.TritonModelException(message) from refused

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer all requests, each with its own outputs or its own error."""
        asked = [
            Request(
                {tensor.name(): tensor.as_numpy() for tensor in request.inputs()},
                request.requested_output_names(),
            )
            for request in requests
        ]
        answers = self.network.answer(asked)
        return [
            response(answer, request.outputs)
            for answer, request in zip(answers, asked, strict=True)
        ]

    def finalize(self) -> None:
        """Drop the session, which frees its memory and threads."""
        del self.network


def open_network(args: dict[str, str]) -> Network:
    """The session of the model version in `args`, checked against its configuration."""
    config = json.loads(args["model_config"])
    check_served_here(config, args["model_instance_kind"])
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
    batched = config.get("max_batch_size", 0) > 0
    return Network(
        args["model_name"], session, inputs, batched, optional, scalars, run_options(config)
    )


def response(answer: Arrays | RequestError, wanted: Sequence[str]) -> Any:
    """Triton's response for one answer, with the outputs its request wanted."""
    if isinstance(answer, RequestError):
        error = pb_utils.TritonError(str(answer), pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(output_tensors=[], error=error)
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, answer[name]) for name in wanted])
