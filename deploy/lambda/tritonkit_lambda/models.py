"""The models of a pipeline in this process, each by its own `model.py`, as Triton would call it."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

from tritonkit_lambda.errors import Failed, RefusedRequest, StartError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

VERSION = "1"
THREADS, ALONE = "intra_op_thread_count", "tritonkit.threads_alone"
_ERRORS = {pb_utils.TritonError.INVALID_ARG: 400, pb_utils.TritonError.UNAVAILABLE: 503}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelStep:
    """One model of the pipeline: the model's tensor names -> the pipeline's."""

    model: LoadedModel
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class LoadedModel:
    """One model: its Python is imported first, and opens its files when it is told to.

    Args:
        folder: the model's, with the files of its version in `1/`.
        file: the `model.py` that runs it.
        config: its configuration, as JSON has it.
    """

    def __init__(self, folder: Path, file: Path, config: dict[str, Any]) -> None:
        self.name: str = config["name"]
        self._folder, self._config = folder, config
        self._class = _imported(self.name, file).TritonPythonModel

    def open(self, threads: int) -> None:
        """Open its files; StartError where it cannot."""
        parameters = dict(self._config.get("parameters", {}))
        if parameters.pop(ALONE, None) or THREADS in parameters:
            parameters[THREADS] = {"string_value": str(threads)}
        self._model = self._class()
        arguments = {
            "model_name": self.name,
            "model_version": VERSION,
            "model_repository": str(self._folder),
            "model_config": json.dumps(self._config | {"parameters": parameters}),
            "model_instance_kind": "CPU",
            "model_instance_name": f"{self.name}_0",
            "model_instance_device_id": "0",
        }
        try:
            if hasattr(self._model, "initialize"):
                self._model.initialize(arguments)
        except pb_utils.TritonModelException as error:
            raise StartError(str(error)) from None

    def run(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, Any]:
        """The outputs of one request.

        Raises:
            RefusedRequest: the model refuses it. Failed: anything else.
        """
        tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
        try:
            request = pb_utils.InferenceRequest(inputs=tensors, requested_output_names=outputs)
            [response] = self._model.execute([request])
        except Exception:
            _log.exception("model '%s' failed", self.name)
            raise Failed(f"model '{self.name}' failed: the function's log says why") from None
        error = response.error()
        if error is None:
            return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
        if error.code() in _ERRORS:
            raise RefusedRequest(error.message(), _ERRORS[error.code()])
        _log.error("%s", error.message())
        raise Failed(f"model '{self.name}' failed: the function's log says why")


def run(steps: Sequence[ModelStep], inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """The pipeline's outputs for one request."""
    tensors = dict(inputs)
    for step in steps:
        step_inputs = {own: tensors[name] for own, name in step.inputs.items()}
        made = step.model.run(step_inputs, list(step.outputs))
        if lacking := [own for own in step.outputs if own not in made]:
            _log.error("model '%s' gave no output '%s'", step.model.name, lacking[0])
            raise Failed(f"model '{step.model.name}' failed: the function's log says why")
        tensors |= {name: made[own] for own, name in step.outputs.items()}
    return {name: tensors[name] for name in outputs}


def _imported(name: str, file: Path) -> Any:
    """A `model.py` as a module of its own; modules in its folder can be imported by name, as in Triton's stub."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(f"tritonkit_model_{name}", file)
    if spec is None or spec.loader is None:
        raise StartError(f"{file}: it cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _log.exception("%s", file)
        raise StartError(f"{file}: {type(error).__name__}: {error}") from None
    return module
