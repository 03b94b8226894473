"""A decoupled model: one answer for each word of a text, a tenth of a second apart."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model that Triton's Python backend loads."""

    def execute(self, requests):
        """Send the words of each request; stop when nobody reads them any more."""
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()[0].decode()
            for word in text.split():
                if request.is_cancelled():
                    break
                tensor = pb_utils.Tensor("word", np.array([word.encode()], dtype=object))
                sender.send(pb_utils.InferenceResponse([tensor]))
                time.sleep(0.1)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
