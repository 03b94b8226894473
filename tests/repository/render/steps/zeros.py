"""A Triton Python model that answers every request with zeros of the shapes its configuration gives."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Zeros for each output, one axis of free size taken as 1; decoupled models answer once."""

    def initialize(self, args):
        """Keep the configuration."""
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        """One response of zeros per request."""
        responses = [self._answer(request) for request in requests]
        if not self.config.get("model_transaction_policy", {}).get("decoupled"):
            return responses
        for request, response in zip(requests, responses, strict=True):
            request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def _answer(self, request):
        batch = [len(request.inputs()[0].as_numpy())] if self.config["max_batch_size"] else []
        return pb_utils.InferenceResponse([self._zeros(output, batch) for output in self.config["output"]])

    def _zeros(self, output, batch):
        shape = batch + [max(1, int(size)) for size in output["dims"]]
        dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        values = np.full(shape, b"", dtype) if dtype == np.object_ else np.zeros(shape, dtype)
        return pb_utils.Tensor(output["name"], values)
