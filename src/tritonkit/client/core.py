"""The client without its wire: arrays to a request message, a response message to arrays.

Nothing here does I/O or knows gRPC calls: a sync shell, an async one, a cache or a stream each put
these functions around their own way of sending.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from tritonkit.client.conform import conform, fits
from tritonkit.client.tensors import from_raw, to_raw
from tritonkit.errors import InferenceError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.signature import ModelSignature

__all__ = ["MESSAGE_LIMIT", "checked_inputs", "decode_response", "encode_request", "messages"]

MESSAGE_LIMIT = 2**31 - 2**20
"""Bytes of tensor data in one request: protobuf messages end at 2 GiB, and hold names too."""


@cache
def messages() -> Any:
    """Triton's generated protobuf classes, loaded at first use: they bring in gRPC."""
    from tritonclient.grpc import service_pb2

    return service_pb2


def encode_request(
    signature: ModelSignature,
    inputs: Mapping[str, Any],
    *,
    version: str = "",
    outputs: Sequence[str] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Check `inputs` against the model and write one `ModelInferRequest`.

    Args:
        signature: what the model takes.
        inputs: values by input name; `tritonkit.client.conform` and `values` say what fits.
        version: the version to ask for, empty for the server's choice.
        outputs: the outputs to ask for, None for all.
        timeout_s: sent as Triton's `timeout` parameter, in microseconds, so that a scheduler may
            drop the request when nobody waits for it any more.

    Raises:
        InvalidInput: something does not fit; nothing was sent.
    """
    arrays = checked_inputs(signature, inputs)
    request = messages().ModelInferRequest(model_name=signature.name, model_version=version)
    for name, array in arrays.items():
        datatype = signature.inputs[name].datatype
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(to_raw(array, datatype))
    if outputs is not None:
        for name in _checked_outputs(signature, outputs):
            request.outputs.add(name=name)
    if timeout_s is not None:
        request.parameters["timeout"].int64_param = max(1, int(timeout_s * 1e6))
    return request


def decode_response(response: Any) -> dict[str, NDArray[Any]]:
    """Read the output arrays of a `ModelInferResponse`, views of its bytes where that is possible.

    Raises:
        InferenceError: the answer contradicts itself: bytes that do not fill the stated shape, an
            unknown datatype, a tensor without bytes.
    """
    raw = response.raw_output_contents
    arrays: dict[str, NDArray[Any]] = {}
    try:
        for output, content in zip(response.outputs, raw, strict=True):
            arrays[output.name] = from_raw(content, output.datatype, tuple(output.shape))
    except ValueError as error:
        raise InferenceError(
            f"model {response.model_name}",
            found="an answer that cannot be read",
            wanted="raw bytes for every output, filling its shape",
            details=str(error),
        ) from error
    return arrays


def checked_inputs(signature: ModelSignature, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Every input as the array to send, batch axis first where the model batches.

    Raises:
        InvalidInput: naming the model and the input.
    """
    if inputs.keys() != signature.inputs.keys():
        _check_names(signature, inputs)
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in inputs.items():
        spec = signature.inputs[name]
        if not fits(value, spec):
            value = conform(value, spec, f"model {signature.name}, input {name}")
        arrays[name] = value
    if signature.max_batch_size:
        _check_batch(signature, arrays)
    _check_size(signature, arrays)
    return arrays


def _check_names(signature: ModelSignature, inputs: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in signature.inputs:
            raise _unknown(signature, "input", name, signature.inputs)
    missing = [
        name for name, spec in signature.inputs.items() if name not in inputs and not spec.optional
    ]
    if missing:
        raise InvalidInput(
            f"model {signature.name}",
            found=f"no value for input {', '.join(missing)}",
            wanted=f"values for {', '.join(signature.inputs)}",
        )


def _checked_outputs(signature: ModelSignature, outputs: Sequence[str]) -> Sequence[str]:
    names = (outputs,) if isinstance(outputs, str) else outputs
    for name in names:
        if name not in signature.outputs:
            raise _unknown(signature, "output", name, signature.outputs)
    return names


def _unknown(signature: ModelSignature, kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return InvalidInput(
        f"model {signature.name}, {kind} {name}",
        found=f"the model has no such {kind}",
        wanted=f"one of {', '.join(names)}",
        todo=f"did you mean {near[0]}?" if near else "",
    )


def _check_batch(signature: ModelSignature, arrays: Mapping[str, NDArray[Any]]) -> None:
    sizes = {name: len(array) for name, array in arrays.items() if signature.inputs[name].batched}
    if len(sizes) > 1 and len(set(sizes.values())) > 1:
        raise InvalidInput(
            f"model {signature.name}",
            found="batches of different sizes: " + ", ".join(f"{k} {v}" for k, v in sizes.items()),
            wanted="the same number of items in every input",
        )
    largest = next(iter(sizes.values()), 0)
    if largest > signature.max_batch_size:
        raise InvalidInput(
            f"model {signature.name}",
            found=f"a batch of {largest}",
            wanted=f"at most {signature.max_batch_size}, the model's max_batch_size",
            todo="split it into several calls; the server batches them together again",
        )


def _check_size(signature: ModelSignature, arrays: Mapping[str, NDArray[Any]]) -> None:
    total = 0
    for array in arrays.values():
        objects = array.dtype.kind == "O"
        total += sum(4 + len(cell) for cell in array.flat) if objects else array.nbytes
    if total > MESSAGE_LIMIT:
        raise InvalidInput(
            f"model {signature.name}",
            found=f"{total} bytes of tensor data",
            wanted=f"at most {MESSAGE_LIMIT} in one request (a protobuf message ends at 2 GiB)",
            todo="send fewer items in one call",
        )
