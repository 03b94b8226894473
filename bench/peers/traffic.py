"""The one request of each model in each server's format, and its answer read back for the check."""

from __future__ import annotations

import base64
import http.client
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FORMATS", "MODELS", "Answer", "Request", "ask", "content", "difference", "expected"]

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = "Where is my parcel? It was sent a week ago, and the page that follows it says nothing new."
TIMEOUT_S = 30.0
GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
_DTYPES = {"FP32": np.float32}


@dataclass(frozen=True)
class Tensors:
    """A model's ends as the Open Inference Protocol has them, for one item in a batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]


MODELS = {
    "digits_network": Tensors("pixels", "FP32", (1, 1, 8, 8), ("logits",)),
    "sentences": Tensors("text", "BYTES", (1, 1), ("embedding",)),
    "resnet50": Tensors("image", "BYTES", (1, 1), ("label", "score")),
}


@dataclass(frozen=True)
class Answer:
    """Logits, an embedding, or scores with their labels, best first."""

    numbers: np.ndarray
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """The request that the load generator sends again and again.

    Args:
        protocol: http or grpc.
        url: with scheme, host, port and path.
        headers, body: as they are sent.
        read: turns an answer's body and headers into its value.
        socket: a unix socket to go through instead of the URL's host and port.
        connections: whether callers of gRPC have a connection each instead of a stream each.
    """

    protocol: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    read: Callable[[bytes, Mapping[str, str]], Answer]
    socket: str = ""
    connections: bool = field(default=False)


def content(model: str) -> bytes:
    """The item that every server is sent: 256 bytes of float32, a text, or a JPEG."""
    if model == "digits_network":
        return np.random.default_rng(0).random((1, 8, 8), dtype=np.float32).tobytes()
    if model == "sentences":
        return TEXT.encode()
    return (ROOT / "models" / "resnet50" / "examples" / "discs.jpg").read_bytes()


def expected(model: str, raw: bytes) -> Answer:
    """The answer of `bench/peers/models/MODEL/model.py`, parsed."""
    return _plain(model)(raw, {})


def ask(request: Request) -> Answer:
    """Send it once.

    Raises:
        OSError, http.client.HTTPException, ValueError: no answer, a refusal, or one that cannot be read.
    """
    if request.protocol == "grpc":
        return _ask_grpc(request)
    parts = urlsplit(request.url)
    connection = _connection(request, parts.hostname or "", parts.port or 80)
    try:
        connection.request("POST", parts.path, request.body, dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"status {answer.status}: {body[:300].decode(errors='replace')}")
    return request.read(body, {name.lower(): value for name, value in answer.getheaders()})


def difference(actual: Answer, expected: Answer) -> float:
    """The largest difference of a number; infinite where shapes or the first labels differ."""
    if actual.numbers.shape != expected.numbers.shape or actual.labels[:1] != expected.labels[:1]:
        return float("inf")
    return float(np.abs(actual.numbers - expected.numbers).max())


def _connection(request: Request, host: str, port: int) -> http.client.HTTPConnection:
    if not request.socket:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    from tritonkit.serve.core.unix_http import UnixConnection

    path = Path(request.socket)
    return UnixConnection(path.parent, path.name, TIMEOUT_S)


def _ask_grpc(request: Request) -> Answer:
    import grpc

    with grpc.insecure_channel(urlsplit(request.url).netloc) as channel:
        call = channel.unary_unary(GRPC_PATH)
        try:
            body = call(request.body[5:], timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise ValueError(f"{error.code()}: {error.details()}") from None
    return request.read(body, {})


def _raw(model: str, address: str, path: str = "/predict") -> Request:
    """The item's bytes, answered by bytes."""
    headers = {"content-type": "application/octet-stream"}
    return Request("http", f"http://{address}{path}", headers, content(model), _plain(model))


def _mosec(model: str, address: str) -> Request:
    return _raw(model, address, "/inference")


def _json(model: str, address: str) -> Request:
    """Numbers as JSON in both directions."""
    pixels = np.frombuffer(content(model), np.float32).reshape(1, 8, 8).tolist()

    def read(body: bytes, _: Mapping[str, str]) -> Answer:
        return Answer(np.array(json.loads(body)["logits"], np.float32))

    return _posted(address, "/json", {"pixels": pixels}, read)


def _base64(model: str, address: str) -> Request:
    """LitServe: JSON in, because it reads only JSON and forms; bytes out."""
    body = {"content": base64.b64encode(content(model)).decode()}
    return _posted(address, "/predict", body, _plain(model))


def _base64_list(model: str, address: str) -> Request:
    """BentoML: a list that it joins with others'; a list with the answer."""
    body = {"contents": [base64.b64encode(content(model)).decode()]}

    def read(body: bytes, _: Mapping[str, str]) -> Answer:
        [answer] = json.loads(body)
        return _plain(model)(base64.b64decode(answer), {})

    return _posted(address, "/predict", body, read)


def _openai(model: str, address: str) -> Request:
    """Infinity: OpenAI's embeddings, the numbers as base64, which is shorter than decimals."""
    body = {"model": model, "input": [TEXT], "encoding_format": "base64"}

    def read(body: bytes, _: Mapping[str, str]) -> Answer:
        embedding = json.loads(body)["data"][0]["embedding"]
        return Answer(np.frombuffer(base64.b64decode(embedding), np.float32))

    return _posted(address, "/embeddings", body, read)


def _posted(address: str, path: str, body: Any, read: Callable[..., Answer]) -> Request:
    headers = {"content-type": "application/json"}
    return Request("http", f"http://{address}{path}", headers, json.dumps(body).encode(), read)


def _plain(model: str) -> Callable[[bytes, Mapping[str, str]], Answer]:
    """Float32 as bytes; for resnet50 JSON with labels and scores."""

    def read(body: bytes, _: Mapping[str, str]) -> Answer:
        if model == "resnet50":
            answer = json.loads(body)
            return Answer(np.array(answer["score"], np.float32), tuple(answer["label"]))
        return Answer(np.frombuffer(body, np.float32))

    return read


def _v2(model: str, address: str) -> Request:
    """The Open Inference Protocol with the binary data extension in both directions."""
    tensors, data = MODELS[model], _element(model)
    head = {
        "inputs": [_input(tensors) | {"parameters": {"binary_data_size": len(data)}}],
        "parameters": {"binary_data_output": True},
    }
    encoded = json.dumps(head).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(encoded))}
    url = f"http://{address}/v2/models/{model}/infer"
    return Request("http", url, headers, encoded + data, _read_v2)


def _v2_json(model: str, address: str) -> Request:
    """The Open Inference Protocol, all of it JSON; BYTES are text, so an image goes as base64."""
    tensors, item = MODELS[model], content(model)
    if tensors.datatype == "FP32":
        values: list[Any] = np.frombuffer(item, np.float32).tolist()
    else:
        values = [item.decode() if model == "sentences" else base64.b64encode(item).decode()]
    body = {"inputs": [_input(tensors) | {"data": values}]}
    return _posted(address, f"/v2/models/{model}/infer", body, _read_v2)


def _grpc(model: str, address: str) -> Request:
    """ModelInfer with raw contents, as one gRPC message."""
    from tritonclient.grpc import service_pb2 as messages

    tensors = MODELS[model]
    request = messages.ModelInferRequest(model_name=model)
    request.inputs.add(name=tensors.name, datatype=tensors.datatype, shape=tensors.shape)
    request.raw_input_contents.append(_element(model))
    message = request.SerializeToString()
    body = struct.pack(">BI", 0, len(message)) + message
    headers = {"content-type": "application/grpc", "te": "trailers"}
    return Request("grpc", f"http://{address}{GRPC_PATH}", headers, body, _read_grpc)


def _input(tensors: Tensors) -> dict[str, Any]:
    return {"name": tensors.name, "shape": list(tensors.shape), "datatype": tensors.datatype}


def _element(model: str) -> bytes:
    """The item's contents; BYTES are preceded by their length."""
    item = content(model)
    return item if MODELS[model].datatype == "FP32" else struct.pack("<I", len(item)) + item


def _read_v2(body: bytes, headers: Mapping[str, str]) -> Answer:
    size = int(headers.get("inference-header-content-length", len(body)))
    outputs: dict[str, Any] = {}
    at = size
    for output in json.loads(body[:size])["outputs"]:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            outputs[output["name"]] = output["data"]
        else:
            outputs[output["name"]] = _values(output["datatype"], body[at : at + length])
            at += length
    return _answer(outputs)


def _read_grpc(body: bytes, _: Mapping[str, str]) -> Answer:
    from tritonclient.grpc import service_pb2 as messages

    answer = messages.ModelInferResponse.FromString(body)
    if answer.raw_output_contents:
        pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
        return _answer({output.name: _values(output.datatype, raw) for output, raw in pairs})
    return _answer({o.name: list(o.contents.fp32_contents or o.contents.bytes_contents) for o in answer.outputs})


def _values(datatype: str, raw: bytes) -> Any:
    if datatype in _DTYPES:
        return np.frombuffer(raw, _DTYPES[datatype])
    values, at = [], 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        values.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return values


def _answer(outputs: Mapping[str, Any]) -> Answer:
    labels = [v.decode() if isinstance(v, bytes) else v for v in outputs.get("label", ())]
    [numbers] = [value for name, value in outputs.items() if name != "label"]
    return Answer(np.array(numbers, np.float32).ravel(), tuple(labels))


FORMATS: dict[str, Callable[[str, str], Request]] = {
    "raw": _raw,
    "mosec": _mosec,
    "json": _json,
    "base64": _base64,
    "base64-list": _base64_list,
    "openai": _openai,
    "v2": _v2,
    "v2-json": _v2_json,
    "grpc": _grpc,
}
"""Makers of a request for a model at `HOST:PORT`, by name."""
