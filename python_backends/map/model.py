"""Calls a model for each item of a request, where requests have different numbers of them (`map:` of a pipeline).

The build writes it next to map_core.py. Triton runs one batch of requests in an instance at a time; several instances
overlap, and the callee batches the calls of all.
"""

from __future__ import annotations

import json
from typing import Any

import triton_python_backend_utils as pb_utils
from map_core import Arrays, Form, Runner, Settings, Work
from step_support import Passed, loading, settings_from


class TritonPythonModel:
    """One instance of the map."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters; raises TritonModelException for unfit ones."""
        config = json.loads(args["model_config"])
        with loading(args) as self.step:
            self.settings = settings_from(Settings, self.step.parameters)
        forms = {
            output["name"]: Form(pb_utils.triton_string_to_numpy(output["data_type"]), tuple(map(int, output["dims"])))
            for output in config["output"]
        }
        self._outputs = list(forms)
        self._runner = Runner(self.settings, forms, self._ask)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Call the callee for the items of all requests."""
        return self.step.answer(requests, self._read, self._runner.run)

    def finalize(self) -> None:
        """End the threads of the calls."""
        self._runner.close()

    def _read(self, request: Any) -> Work:
        inputs = {tensor.name(): self.step.read(request, tensor.name()) for tensor in request.inputs()}
        return Work(inputs, self.settings, request.timeout(), request.is_cancelled)

    def _ask(self, inputs: Arrays, timeout: int) -> Arrays:
        request = pb_utils.InferenceRequest(
            model_name=self.settings.callee,
            requested_output_names=self._outputs,
            inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
            timeout=timeout,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = request.exec()
        if response.has_error():
            raise Passed(response.error().message())
        return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
