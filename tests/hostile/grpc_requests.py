"""Requests that no honest client sends: mutated protobuf messages and mutated bytes, from a seed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

__all__ = ["STATUSES", "Sender", "mutated_request"]

SERVICE = "/inference.GRPCInferenceService"
STATUSES = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "RESOURCE_EXHAUSTED",
    "INTERNAL",
}
"""Triton's statuses for a client's mistakes: INTERNAL too, for some."""
INTEGERS = (0, 1, -1, 2, 7, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
TEXTS = (
    "",
    " ",
    "x",
    "wide",
    "text",
    "no_such_model",
    "../wide",
    "wide/1",
    "a" * 5000,
    "\0",
    "\n",
    "%s%n",
    "é" * 300,
    "-1",
    "1",
    "0",
    "99999999999999999999",
    "1e9",
    "FP32",
    "BYTES",
    "INT8",
    "FP16",
    "BF16",
    "BOOL",
    "fp32",
    "STRING",
)
PARAMETERS = (
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "shared_memory_region",
    "shared_memory_byte_size",
    "shared_memory_offset",
    "classification",
    "binary_data",
    "binary_data_size",
    "triton_enable_empty_final_response",
    "headers",
    "triton_custom",
    "",
)
UNARY = (
    "ModelInfer",
    "ModelMetadata",
    "ModelConfig",
    "ModelReady",
    "ModelStatistics",
    "ServerMetadata",
    "RepositoryIndex",
    "TraceSetting",
    "LogSettings",
    "SystemSharedMemoryRegister",
    "RepositoryModelLoad",
)


def mutated_request(random: Random, models: Sequence[str]) -> Any:
    """A ModelInferRequest for one of `models` of conftest.EVERY_KIND, right but for one to four things."""
    request = _right(random, random.choice(models))
    for _ in range(random.randint(1, 4)):
        random.choice(_MUTATIONS)(request, random)
    return request


class Sender:
    """Sends them to an address and says how each was answered.

    Args:
        address: a gRPC server.
        models: those to ask.
        timeout_s: for each; one that takes longer is answered with DEADLINE_EXCEEDED by this side.
        authority: a certificate in PEM, for TLS.
        key: sent with each, where there is one.
    """

    def __init__(
        self, address: str, models: Sequence[str], timeout_s: float = 20.0, authority: bytes = b"", key: str = ""
    ) -> None:
        self._models = models
        self._channel = (
            grpc.secure_channel(address, grpc.ssl_channel_credentials(authority))
            if authority
            else grpc.insecure_channel(address)
        )
        self._timeout_s = timeout_s
        self._metadata = (("x-api-key", key),) if key else ()

    def send(self, random: Random) -> str:
        """One request, as bytes to a method, as one message or a stream; the status's name."""
        body = mutated_request(random, self._models).SerializeToString()
        if random.random() < 0.3:
            body = _mutated_bytes(body, random)
        if random.random() < 0.15:
            return self._stream([body] * random.randint(1, 3))
        method = "ModelInfer" if random.random() < 0.8 else random.choice(UNARY)
        call = self._channel.unary_unary(f"{SERVICE}/{method}")
        return _status(lambda: call(body, timeout=self._timeout_s, metadata=self._metadata))

    def _stream(self, bodies: list[bytes]) -> str:
        call = self._channel.stream_stream(f"{SERVICE}/ModelStreamInfer")
        sent = {"timeout": self._timeout_s, "metadata": self._metadata}
        return _status(lambda: list(call(iter(bodies), **sent)))

    def close(self) -> None:
        """Give the connection back."""
        self._channel.close()


def _status(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]
    return "OK"


def _right(random: Random, model: str) -> Any:
    request = service_pb2.ModelInferRequest()
    request.model_name = model
    tensor = request.inputs.add(name="x")
    count = random.randint(1, 300)
    if request.model_name == "text":
        text = random.randbytes(count)
        _describe(tensor, "BYTES", [1, 1])
        request.raw_input_contents.append(struct.pack("<I", len(text)) + text)
    elif request.model_name == "mixed":
        _describe(tensor, "INT8", [4, count])
        request.raw_input_contents.append(random.randbytes(4 * count))
        if random.random() < 0.5:
            _describe(request.inputs.add(name="flags"), "BOOL", [2])
            request.raw_input_contents.append(b"\0\1")
    else:
        _describe(tensor, "FP32", [1, count])
        request.raw_input_contents.append(random.randbytes(4 * count))
    if request.model_name == "sequence":
        request.parameters["sequence_id"].int64_param = random.randint(1, 50)
        request.parameters["sequence_start"].bool_param = random.random() < 0.5
        request.parameters["sequence_end"].bool_param = random.random() < 0.5
    if random.random() < 0.5:
        request.outputs.add(name="y")
    return request


def _describe(tensor: Any, datatype: str, shape: list[int]) -> None:
    tensor.datatype = datatype
    tensor.shape.extend(shape)


def _name(request: Any, random: Random) -> None:
    field = random.choice(("model_name", "model_version", "id"))
    setattr(request, field, random.choice(TEXTS))


def _shape(request: Any, random: Random) -> None:
    shape = request.inputs[0].shape if request.inputs else request.inputs.add().shape
    if shape and random.random() < 0.7:
        shape[random.randrange(len(shape))] = random.choice(INTEGERS)
    else:
        shape.extend(random.choice(INTEGERS) for _ in range(random.choice((1, 2, 8, 300))))


def _datatype(request: Any, random: Random) -> None:
    for tensor in request.inputs:
        tensor.datatype = random.choice(TEXTS)


def _raw(request: Any, random: Random) -> None:
    raw = request.raw_input_contents
    kind = random.randrange(5)
    if kind == 0 or not raw:
        raw.append(random.randbytes(random.choice((0, 1, 3, 4096))))
    elif kind == 1:
        del raw[:]
    elif kind == 2:
        raw[0] = raw[0][: random.randrange(len(raw[0]) + 1)]
    elif kind == 3:
        raw[0] = struct.pack("<I", random.choice((0, 1, 5, 0x7FFFFFFF, 0xFFFFFFFF))) + raw[0]
    else:
        raw[0] = raw[0] * random.choice((2, 50))


def _contents(request: Any, random: Random) -> None:
    """Typed contents, in addition to raw ones or instead."""
    for tensor in request.inputs:
        field, values = random.choice(
            (
                ("fp32_contents", [1.0] * random.choice((1, 4, 1000))),
                ("int_contents", [random.choice((-1, 0, 1 << 30))] * 3),
                ("uint64_contents", [(1 << 64) - 1]),
                ("bool_contents", [True]),
                ("bytes_contents", [random.randbytes(50)]),
            )
        )
        getattr(tensor.contents, field).extend(values)
    if random.random() < 0.5:
        del request.raw_input_contents[:]


def _tensors(request: Any, random: Random) -> None:
    kind = random.randrange(5)
    if kind == 0:
        del request.inputs[:]
    elif kind == 1 and request.inputs:
        request.inputs.add().CopyFrom(request.inputs[0])
    elif kind == 2:
        request.inputs.add(name=random.choice(TEXTS), datatype="FP32").shape.extend([1])
    elif kind == 3:
        for _ in range(random.choice((1, 3, 200))):
            request.outputs.add(name=random.choice((*TEXTS, "y")))
    elif request.inputs:
        request.inputs[0].name = random.choice(TEXTS)


def _parameter(request: Any, random: Random) -> None:
    places = [request.parameters]
    places += [tensor.parameters for tensor in (*request.inputs, *request.outputs)]
    value = random.choice(places)[random.choice(PARAMETERS)]
    kind = random.choice(("bool_param", "int64_param", "string_param", "double_param", "uint64_param"))
    values = {
        "bool_param": random.random() < 0.5,
        "int64_param": random.choice(INTEGERS),
        "string_param": random.choice(TEXTS),
        "double_param": random.choice((0.0, -1.0, 1e308)),
        "uint64_param": random.choice((0, 1, (1 << 64) - 1)),
    }
    setattr(value, kind, values[kind])


_MUTATIONS: tuple[Callable[[Any, Random], None], ...] = (
    _name,
    _shape,
    _shape,
    _datatype,
    _raw,
    _raw,
    _contents,
    _tensors,
    _parameter,
    _parameter,
)


def _mutated_bytes(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(random.randint(1, 8)):
        place = random.randrange(len(changed) + 1)
        kind = random.randrange(4)
        if kind == 0 and place < len(changed):
            changed[place] = random.randrange(256)
        elif kind == 1:
            changed[place:place] = random.randbytes(random.choice((1, 2, 30)))
        elif kind == 2:
            del changed[place : place + random.choice((1, 5, 100))]
        else:
            changed = changed[:place]
    return bytes(changed)
