"""The model class that Triton calls: a stand-in around `open_network` of the backend's own `model.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils
from backend_batch import Request, RequestError
from backend_config import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backend_batch import Arrays, Network


class StandIn:
    """One instance of one model: one network, opened in a process of its own."""

    open_network: Callable[[dict[str, str]], Network]

    def initialize(self, args: dict[str, str]) -> None:
        """Open the network; raises TritonModelException if the model cannot be served."""
        try:
            self.network = type(self).open_network(args)
        except ModelError as refused:
            message = f"model '{args['model_name']}': {refused}"
            raise pb_utils.TritonModelException(message) from refused

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer all requests, each with its own outputs or its own error."""
        parsed = [
            Request({tensor.name(): tensor.as_numpy() for tensor in request.inputs()}, request.requested_output_names())
            for request in requests
        ]
        answers = self.network.answer(parsed)
        return [_response(answer, request.outputs) for answer, request in zip(answers, parsed, strict=True)]

    def finalize(self) -> None:
        """Drop the network, which frees its memory and threads."""
        del self.network


def log_info(line: str) -> None:
    """Write a line to Triton's log, which a function of AWS Lambda does not have."""
    pb_utils.Logger.log_info(line)


def _response(answer: Arrays | RequestError, names: Sequence[str]) -> Any:
    """Triton's response for one answer, with the outputs that its request names."""
    if isinstance(answer, RequestError):
        error = pb_utils.TritonError(str(answer), pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(output_tensors=[], error=error)
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, answer[name]) for name in names])
