"""Triton's module of this name for a model's own Python, without Triton.

A `model.py` runs here as it does in Triton's stub: same files, same answers, same errors. A function of AWS Lambda, a
build that prepares samples, and `tritonkit.testing` use it. The program that runs the model answers its calls of
other models (`responder`). It needs numpy alone; there are no GPUs here.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from triton_python_types import deserialize_bytes_tensor as deserialize_bytes_tensor
from triton_python_types import numpy_to_triton_type as numpy_to_triton_type
from triton_python_types import serialize_byte_tensor as serialize_byte_tensor
from triton_python_types import triton_string_to_numpy as triton_string_to_numpy
from triton_python_types import triton_to_numpy_type as triton_to_numpy_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU = 0, 2

SET_AFTER_IMPORT = (
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "PreferredMemory",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "is_model_ready",
)
"""Names that Triton's stub sets once it has imported the model.py: a `from` of them at its top fails there."""

responder: Callable[[InferenceRequest], Iterator[InferenceResponse]] | None = None
"""Function of the program that runs a model: the responses of another model that it calls. None while none runs."""


class TritonModelException(Exception):
    """The model cannot be loaded, or not run."""


class TritonError:
    """The reason why a request has no answer."""

    (UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED) = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        """The message in words."""
        return self._message

    def code(self) -> int:
        """One of the constants."""
        return self._code


class Tensor:
    """A name and an array."""

    def __init__(self, name: str, numpy_array: np.ndarray) -> None:
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"Tensor {name!r} is a {type(numpy_array).__name__}: a numpy array is wanted")
        self._dtype = numpy_to_triton_type(numpy_array.dtype)
        if self._dtype is None:
            raise TypeError(f"Tensor {name!r} has the dtype {numpy_array.dtype}, which Triton has not")
        self._name, self._array = name, np.ascontiguousarray(numpy_array).reshape(numpy_array.shape)

    def name(self) -> str:
        """The name."""
        return self._name

    def as_numpy(self) -> np.ndarray:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        """Sizes, the batch axis first if there is one."""
        return list(self._array.shape)

    def triton_dtype(self) -> int:
        """The number of its datatype."""
        return self._dtype

    def is_cpu(self) -> bool:
        """Whether it is in memory that a CPU reads."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule."""
        if self._array.dtype == np.object_:
            raise TritonModelException("DLPack does not have support for string tensors.")
        return self._array.__dlpack__()

    def __dlpack__(self, **how: Any) -> Any:
        """A DLPack capsule, for libraries that take the tensor itself."""
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return self._array.__dlpack_device__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor of another library's, as a copy."""
        owner = tensor if hasattr(tensor, "__dlpack__") else _Capsule(tensor)
        return Tensor(name, np.array(np.from_dlpack(owner)))


class _Capsule:
    """A capsule as numpy takes it."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **how: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class PreferredMemory:
    """The place where a called model should leave its outputs; here it is always the CPU's memory."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self._place = preferred_memory_type, preferred_device_id


class ResponseSender:
    """Sends the responses of one request, also after `execute` has returned."""

    def __init__(self, decoupled: bool, is_cancelled: Callable[[], bool]) -> None:
        self._decoupled, self.is_cancelled = decoupled, is_cancelled
        self.sent: list[InferenceResponse] = []
        self.closed = threading.Event()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, or the end alone, or both."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if flags == 0 and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if self.closed.is_set():
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if not self._decoupled and response is not None and self.sent:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        if not self._decoupled and response is None and not self.sent:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
            )
        if response is not None:
            self.sent.append(response)
        if flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            self.closed.set()


class InferenceRequest:
    """Inputs of one call."""

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: Any = None,
        parameters: Mapping[str, bool | int | str] | None = None,
        sender: ResponseSender | None = None,
    ) -> None:
        self._inputs, self._wanted, self._id = list(inputs), list(requested_output_names), request_id
        self._correlation, self._flags, self._timeout, self._trace = correlation_id, flags, timeout, trace
        self._model, self._version, self._sender = model_name, model_version, sender
        self._parameters = json.dumps(_checked(parameters))

    def inputs(self) -> list[Tensor]:
        """All input tensors."""
        return self._inputs

    def requested_output_names(self) -> list[str]:
        """Names of the outputs that the caller requested."""
        return self._wanted

    def request_id(self) -> str:
        """The caller's ID of the request; empty without one."""
        return self._id

    def correlation_id(self) -> int | str:
        """The ID of its sequence; 0 without one."""
        return self._correlation

    def flags(self) -> int:
        """Whether it starts or ends its sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Change the flags, before the request is sent."""
        self._flags = flags

    def timeout(self) -> int:
        """Microseconds that it may wait; 0 without a limit."""
        return self._timeout

    def parameters(self) -> str:
        """The caller's parameters as JSON."""
        return self._parameters

    def model_name(self) -> str:
        """The model to call."""
        return self._model

    def model_version(self) -> int:
        """The version to call; -1 for the one that is served."""
        return self._version

    def trace(self) -> Any:
        """The caller's trace, to be handed on; there are no traces here."""
        return self._trace

    def is_cancelled(self) -> bool:
        """Whether the caller waits no longer."""
        return self._sender is not None and self._sender.is_cancelled()

    def get_response_sender(self) -> ResponseSender:
        """The way to give responses before `execute` returns."""
        if self._sender is None:
            raise TritonModelException("there is no response sender here: return the responses")
        return self._sender

    def exec(self, decoupled: bool = False) -> Any:
        """Call another model: its response, or an iterator of its responses."""
        responses = self._called()
        return responses if decoupled else next(responses)

    async def async_exec(self, decoupled: bool = False) -> Any:
        """The same for `async def execute`."""
        return self.exec(decoupled)

    def _called(self) -> Iterator[InferenceResponse]:
        if responder is None:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        return responder(self)


class InferenceResponse:
    """The answer to one call: outputs or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        if any(tensor is None for tensor in output_tensors):
            raise TritonModelException("Output tensor for inference response should not be empty.")
        self._outputs, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        """Tensors of an answer without an error."""
        return self._outputs

    def has_error(self) -> bool:
        """Whether there is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error."""
        return self._error


class Logger:
    """Triton's log: Python's own here, under the name `triton`."""

    ERROR, WARNING, INFO, VERBOSE = logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG

    @staticmethod
    def log(message: str, level: int = INFO) -> None:
        """Write a line."""
        logging.getLogger("triton").log(level, "%s", message)

    @classmethod
    def log_error(cls, message: str) -> None:
        """Write an error."""
        cls.log(message, cls.ERROR)

    @classmethod
    def log_warn(cls, message: str) -> None:
        """Write a warning."""
        cls.log(message, cls.WARNING)

    @classmethod
    def log_info(cls, message: str) -> None:
        """Write a line of information."""
        cls.log(message, cls.INFO)

    @classmethod
    def log_verbose(cls, message: str) -> None:
        """Write a line that Triton writes only where its verbose log is on."""
        cls.log(message, cls.VERBOSE)


class Metric:
    """A number of a metric family, with its labels."""

    def __init__(self, labels: Mapping[str, str], kind: int) -> None:
        self.labels, self._kind, self._value = dict(labels), kind, 0.0

    def increment(self, value: float) -> None:
        """Add to it."""
        if self._kind == MetricFamily.COUNTER and value < 0:
            raise TritonModelException("Failed to increment metric value: a counter cannot fall")
        self._value += value

    def set(self, value: float) -> None:
        """Set a gauge."""
        if self._kind != MetricFamily.GAUGE:
            raise TritonModelException("Failed to set metric value: it is not a gauge")
        self._value = value

    def observe(self, value: float) -> None:
        """Add a value to a histogram."""
        if self._kind != MetricFamily.HISTOGRAM:
            raise TritonModelException("Failed to observe metric value: it is not a histogram")

    def value(self) -> float:
        """The number."""
        return self._value


class MetricFamily:
    """A metric of the model's own. It is published nowhere here."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, name: str, description: str, kind: int) -> None:
        self.name, self.description, self.kind = name, description, kind

    def Metric(self, labels: Mapping[str, str] = {}, buckets: Sequence[float] | None = None) -> Metric:  # noqa: N802
        """One number of the family."""
        return Metric(labels, self.kind)


def _checked(parameters: Mapping[str, bool | int | str] | None) -> dict[str, bool | int | str]:
    for name, value in (parameters or {}).items():
        if not isinstance(name, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(name)}")
        if not isinstance(value, bool | int | str):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return dict(parameters or {})


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """An input of a request."""
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """An output of a response."""
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    """An input's part of a model's configuration."""
    return next((part for part in model_config.get("input", []) if part["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    """An output's part of a model's configuration."""
    return next((part for part in model_config.get("output", []) if part["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether a request may have any number of responses."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model can be called; the program that runs this model decides."""
    return responder is not None and bool(getattr(responder, "is_ready", lambda name: True)(model_name))
