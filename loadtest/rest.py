"""Triton's HTTP/REST endpoint with binary tensors: a request as bytes, a response as arrays.

The Open Inference Protocol's JSON, then the tensors' bytes as they are
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit.client.inputs import checked_inputs
from tritonkit.client.wire.tensors import from_raw, to_raw
from tritonkit.errors import InferenceError, ServerUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tritonkit.client import ModelSignature

__all__ = ["LENGTH_HEADER", "RestCall", "check_ready", "connect", "decode", "encode", "infer", "size_of"]

LENGTH_HEADER = "Inference-Header-Content-Length"
OK = 200
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class RestCall:
    """One request, ready to be posted as often as needed."""

    model: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        """The URL that it is posted to."""
        return f"/v2/models/{self.model}/infer"


def encode(signature: ModelSignature, inputs: Mapping[str, Any]) -> RestCall:
    """Check inputs against the model and write the request; InvalidInput if they do not fit."""
    described, raws = [], []
    for name, array in checked_inputs(signature, inputs).items():
        datatype = signature.inputs[name].datatype
        raws.append(to_raw(array, datatype))
        size = {"binary_data_size": len(raws[-1])}
        described.append({"name": name, "datatype": datatype, "shape": array.shape, "parameters": size})
    header = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(header))}
    return RestCall(signature.name, b"".join([header, *raws]), headers)


def decode(body: bytes, header_length: int) -> dict[str, NDArray[Any]]:
    """Output arrays of a response whose JSON is the first `header_length` bytes.

    Raises:
        ValueError, KeyError: the body contradicts itself.
    """
    at = header_length
    arrays = {}
    for output in json.loads(body[:at])["outputs"]:
        end = at + output["parameters"]["binary_data_size"]
        arrays[output["name"]] = from_raw(body[at:end], output["datatype"], output["shape"])
        at = end
    return arrays


def connect(address: str, timeout_s: float = TIMEOUT_S) -> Any:
    """A client with one persistent connection; UsageError if the address is not host:port."""
    from geventhttpclient import HTTPClient

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"HTTP address {address!r}", found="no host and port", wanted="such as 127.0.0.1:8000")
    return HTTPClient(host.strip("[]"), int(port), connection_timeout=timeout_s, network_timeout=timeout_s)


def check_ready(address: str, timeout_s: float) -> None:
    """Raise `ServerUnavailable` if no server there reports that it is ready."""
    from geventhttpclient.response import HTTPParseError

    http = connect(address, timeout_s)
    try:
        status = http.get("/v2/health/ready").status_code
        reason = f"its readiness is status {status}"
    except (OSError, HTTPParseError) as error:
        status, reason = 0, f"{type(error).__name__}: {error}"
    finally:
        http.close()
    if status != OK:
        raise ServerUnavailable(
            f"HTTP address {address}",
            found=reason,
            todo="give Triton's HTTP address with --http-host, or load over gRPC alone (TritonUser)",
        )


def size_of(array: NDArray[Any]) -> int:
    """Bytes of a tensor's content."""
    return sum(map(len, array.ravel())) if array.dtype.kind == "O" else array.nbytes


def infer(http: Any, call: RestCall) -> dict[str, NDArray[Any]]:
    """Post a call with a geventhttpclient.HTTPClient and read the answer.

    Raises:
        ServerUnavailable: no connection, or it broke.
        InferenceError: Triton answered with an error, or with what cannot be read.
    """
    from geventhttpclient.response import HTTPParseError

    where = f"model {call.model} over HTTP"
    try:
        response = http.post(call.path, body=call.body, headers=call.headers)
        status = response.status_code
        length = response.get(LENGTH_HEADER.lower())
        body = bytes(response.read())
    except (OSError, HTTPParseError) as error:
        raise ServerUnavailable(where, found=f"{type(error).__name__}: {error}") from error
    if status != OK:
        raise InferenceError(where, found=f"status {status}: {body[:300].decode(errors='replace')}")
    try:
        return decode(body, int(length or len(body)))
    except (ValueError, KeyError) as error:
        raise InferenceError(where, found=f"an answer that cannot be read: {error}") from error
