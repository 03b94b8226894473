"""Requests with made-up contents for any served model, in Triton's two ways: gRPC and HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.h2load import Body, grpc_body
from bench.samples import DEFAULT_LENGTH, sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["answer_of", "grpc_request", "http_request", "made_up"]

DTYPES = {"FP32": "float32", "INT64": "int64", "UINT8": "uint8"}
_SERVICE = "/inference.GRPCInferenceService"


def answer_of(channel: Any, method: str, model: str) -> Any:
    """The answer to one of Triton's questions about a model: Config, Metadata, Statistics."""
    from tritonclient.grpc import service_pb2 as messages

    request = getattr(messages, f"Model{method}Request")(name=model)
    call = channel.unary_unary(f"{_SERVICE}/Model{method}")
    answer = call(request.SerializeToString(), timeout=60.0)
    return getattr(messages, f"Model{method}Response").FromString(answer)


def made_up(channel: Any, model: str, length: int = DEFAULT_LENGTH) -> dict[str, tuple[str, NDArray[Any]]]:
    """One item: type and array of each input, open axes with `length`."""
    batched = answer_of(channel, "Config", model).config.max_batch_size > 0
    inputs = answer_of(channel, "Metadata", model).inputs
    shapes = {one.name: [1, *one.shape[1:]] if batched else list(one.shape) for one in inputs}
    arrays = sample(shapes, {one.name: DTYPES[one.datatype] for one in inputs}, length=length)
    return {one.name: (one.datatype, arrays[one.name]) for one in inputs}


def grpc_request(channel: Any, model: str, item: dict[str, tuple[str, NDArray[Any]]]) -> Body:
    """A gRPC request for h2load; the item is sent once to learn the length of its answer."""
    from tritonclient.grpc import service_pb2 as messages

    request = messages.ModelInferRequest(model_name=model)
    for name, (datatype, array) in item.items():
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    message = request.SerializeToString()
    answer = channel.unary_unary(f"{_SERVICE}/ModelInfer")(message, timeout=60.0)
    return grpc_body(message, answer=answer)


def http_request(model: str, item: dict[str, tuple[str, NDArray[Any]]]) -> Body:
    """An HTTP request for h2load, with tensors as bytes after the JSON (Triton's binary tensor data extension)."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": array.shape, "parameters": {"binary_data_size": array.nbytes}}
        for name, (datatype, array) in item.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    content = head + b"".join(array.tobytes() for _, array in item.values())
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return Body(f"/v2/models/{model}/infer", content, headers, http=True)
