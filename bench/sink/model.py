"""Takes bytes and answers with one number: the cost of a call is then the client's and the wire's."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The class that Triton's Python backend loads."""

    def execute(self, requests):
        """The first byte of each tensor."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        data = pb_utils.get_input_tensor_by_name(request, "data").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("first", np.array(data[:1], dtype=np.float32))])
