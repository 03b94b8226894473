"""The part of Triton's module of this name that the models' own Python uses, without Triton.

A step's `model.py` and the backend's run here as they do in Triton's stub: same files, same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
"""Names in requests; configurations call BYTES a string."""


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

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        """The name."""
        return self._name

    def as_numpy(self) -> np.ndarray:
        """The array."""
        return self._array


class InferenceRequest:
    """Inputs of one call."""

    def __init__(self, inputs: Sequence[Tensor], requested_output_names: Sequence[str], request_id: str = "") -> None:
        self._inputs, self._wanted, self._id = (list(inputs), list(requested_output_names), request_id)

    def inputs(self) -> list[Tensor]:
        """All input tensors."""
        return self._inputs

    def requested_output_names(self) -> list[str]:
        """Names of the outputs that the caller requested."""
        return self._wanted

    def request_id(self) -> str:
        """The caller's ID of the request; empty without one."""
        return self._id


class InferenceResponse:
    """The answer to one call: outputs or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
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


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """An input of a request."""
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """An output of a response."""
    return next((tensor for tensor in response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(config: Mapping[str, Any], name: str) -> Any:
    """An input's part of a model's configuration."""
    return next((part for part in config.get("input", []) if part["name"] == name), None)


def get_output_config_by_name(config: Mapping[str, Any], name: str) -> Any:
    """An output's part of a model's configuration."""
    return next((part for part in config.get("output", []) if part["name"] == name), None)


def triton_string_to_numpy(name: str) -> Any:
    """The numpy type of a datatype such as `TYPE_FP32`."""
    datatype = name.removeprefix("TYPE_")
    return TYPES["BYTES" if datatype == "STRING" else datatype]
