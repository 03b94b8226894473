"""Requests and responses of the Open Inference Protocol (version 2, REST), checked against the model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonkit_lambda.errors import RefusedRequest
from tritonkit_lambda.tensors import TYPES, datatype_of, from_binary, from_json, read_shape, to_binary, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

MOST_TENSORS = 256
BINARY, BINARY_OUTPUT, BINARY_SIZE = "binary_data", "binary_data_output", "binary_data_size"


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs of the function's model: name -> datatype and dims, without the batch axis."""

    name: str
    version: str
    max_batch_size: int
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]

    def metadata(self) -> dict[str, Any]:
        """The answer to `GET /v2/models/NAME`."""

        def tensors(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
            batch = [-1] if self.max_batch_size else []
            return [
                {"name": name, "datatype": datatype, "shape": [*batch, *dims]}
                for name, (datatype, dims) in types.items()
            ]

        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "onnxruntime",
            "inputs": tensors(self.inputs),
            "outputs": tensors(self.outputs),
        }


@dataclass(frozen=True)
class CheckedRequest:
    """A checked request: arrays with the batch axis first, and the outputs that are wanted, True where as bytes."""

    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, bool]
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def read_request(message: Any, binary: bytes, signature: ModelSignature) -> CheckedRequest:
    """Read a request.

    Args:
        message: the JSON, parsed.
        binary: what stands behind it.
        signature: the model's.

    Raises:
        RefusedRequest: it is none, or not one of this model.
    """
    if not isinstance(message, dict):
        raise RefusedRequest("the request: wanted an object with `inputs`")
    entries = _objects(message.get("inputs"), "inputs")
    arrays: dict[str, np.ndarray] = {}
    at = 0
    for index, tensor in enumerate(entries):
        name, array, size = _read_input(tensor, f"inputs[{index}]", binary[at:], signature)
        if name in arrays:
            raise RefusedRequest(f"inputs[{index}].name: {name!r} is there twice")
        arrays[name] = array
        at += size
    if at != len(binary):
        raise RefusedRequest(f"{len(binary) - at} bytes stand behind the inputs, which no input names")
    if missing := [name for name in signature.inputs if name not in arrays]:
        raise RefusedRequest(f"inputs: {missing[0]!r} is missing; wanted {', '.join(signature.inputs)}")
    if signature.max_batch_size:
        _check_batch(arrays, signature)
    parameters = _parameters(message, "the request")
    identifier = message.get("id", "")
    if not isinstance(identifier, str):
        raise RefusedRequest("id: wanted a text")
    outputs = _wanted(message, bool(parameters.get(BINARY_OUTPUT)), signature)
    return CheckedRequest(arrays, outputs, identifier, parameters)


def write_response(
    request: CheckedRequest, outputs: Mapping[str, np.ndarray], signature: ModelSignature
) -> tuple[dict[str, Any], bytes]:
    """The JSON of an answer, and what stands behind it."""
    listed = []
    behind = []
    for name, as_bytes in request.outputs.items():
        array = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
        if as_bytes:
            behind.append(to_binary(array))
            entry["parameters"] = {BINARY_SIZE: len(behind[-1])}
        else:
            entry["data"] = to_json(name, array)
        listed.append(entry)
    message: dict[str, Any] = {"model_name": signature.name, "model_version": signature.version}
    if request.id:
        message["id"] = request.id
    return message | {"outputs": listed}, b"".join(behind)


def parse(text: bytes) -> Any:
    """JSON of a caller.

    Raises:
        RefusedRequest: it is none.
    """

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(text, parse_constant=constant)
    except RecursionError:
        raise RefusedRequest("the body: too many brackets in brackets") from None
    except ValueError as error:
        raise RefusedRequest(f"the body: not JSON: {error}") from None


def _read_input(
    tensor: dict[str, Any], where: str, binary: bytes, signature: ModelSignature
) -> tuple[str, np.ndarray, int]:
    """Name, array, and how many of the bytes were its own."""
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if not isinstance(name, str) or name not in signature.inputs:
        raise RefusedRequest(f"{where}.name: found {name!r:.80}, wanted {' or '.join(map(repr, signature.inputs))}")
    expected, dims = signature.inputs[name]
    if not isinstance(datatype, str) or datatype != expected or datatype not in TYPES:
        raise RefusedRequest(f"{where}.datatype: found {datatype!r:.80}, wanted {expected!r}, that of {name!r}")
    shape = read_shape(tensor.get("shape"), where)
    full = [-1, *dims] if signature.max_batch_size else list(dims)
    fits = len(shape) == len(full) and all(want in (-1, have) for want, have in zip(full, shape, strict=True))
    if not fits:
        raise RefusedRequest(f"{where}.shape: found {shape}, wanted {full} (-1 is any size)")
    parameters = _parameters(tensor, where)
    if BINARY_SIZE in parameters:
        size = parameters[BINARY_SIZE]
        if type(size) is not int or not 0 <= size <= len(binary):
            raise RefusedRequest(
                f"{where}.parameters.{BINARY_SIZE}: found {size!r:.80}, wanted a whole number up to"
                f" {len(binary)}, the bytes that are there"
            )
        return name, from_binary(binary[:size], datatype, shape, where), size
    coded = parameters.get("content_type") == "base64"
    return name, from_json(tensor.get("data"), datatype, shape, where, in_base64=coded), 0


def _check_batch(arrays: Mapping[str, np.ndarray], signature: ModelSignature) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise RefusedRequest(f"inputs: they differ in their first axis, the batch: {sizes}")
    for size in sizes.values():
        if not 1 <= size <= signature.max_batch_size:
            raise RefusedRequest(f"inputs: found {size} items, wanted 1 to {signature.max_batch_size} (max_batch_size)")


def _wanted(message: dict[str, Any], all_binary: bool, signature: ModelSignature) -> dict[str, bool]:
    if not message.get("outputs"):
        return dict.fromkeys(signature.outputs, all_binary)
    is_binary = {}
    for index, output in enumerate(_objects(message["outputs"], "outputs")):
        name, where = output.get("name"), f"outputs[{index}]"
        if not isinstance(name, str) or name not in signature.outputs:
            raise RefusedRequest(f"{where}.name: found {name!r:.80}, wanted one of {', '.join(signature.outputs)}")
        parameters = _parameters(output, where)
        if parameters.get("classification"):
            raise RefusedRequest(f"{where}.parameters.classification: it is not supported here")
        is_binary[name] = bool(parameters.get(BINARY, all_binary))
    return is_binary


def _objects(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TENSORS:
        raise RefusedRequest(f"{where}: wanted a list of 1 to {MOST_TENSORS} objects")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise RefusedRequest(f"{where}[{index}]: wanted an object with `name`")
    return value


def _parameters(holder: dict[str, Any], where: str) -> dict[str, Any]:
    parameters = holder.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RefusedRequest(f"{where}, parameters: wanted an object")
    return parameters
