"""Requests over HTTP that no honest client sends: mutated JSON, headers, paths and bytes, from a seed.

    Counter(Sender("127.0.0.1:8000").send(random) for _ in range(1000))

Each request is complete, so that each has an answer: one that never ends is ended by time, and is
tested apart.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import socket
import ssl
import struct
from collections.abc import Callable
from random import Random
from typing import Any

__all__ = ["TYPED", "Sender", "mutated_request"]

TYPED = {"200", "400", "403", "404", "405", "413", "415", "426", "431", "503"}
"""Statuses of the REST proxy and of Triton behind it; 503 means too many requests."""

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1e308,
    1 << 31,
    1 << 32,
    1 << 53,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 64,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "x",
    "y",
    "wide",
    "FP32",
    "BYTES",
    "INT8",
    "FP16",
    "BOOL",
    "-1",
    "\0",
    "\u2028",
    "%s%n",
    "a" * 5000,
    [],
    {},
    [[]],
    [{}],
    {"": []},
    [0] * 1000,
    [[0] * 8] * 8,
    [1, "a"],
    {"name": "x"},
    {"shared_memory_region": "r"},
    {"binary_data_size": 8},
    {"classification": 1 << 31},
)
NAMES = (
    "inputs",
    "outputs",
    "id",
    "parameters",
    "name",
    "shape",
    "datatype",
    "data",
    "x",
    "text_input",
    "",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "binary_data",
    "classification",
    "binary_data_output",
    "binary_data_size",
    "shared_memory_region",
    "shared_memory_offset",
    "headers",
)
LENGTHS = ("", "0", "1", "-1", "+1", "2", "1e3", "0x10", "1,1", "99999999", "18446744073709551616", "\x80")
HEADERS = (
    "Content-Encoding: gzip",
    "Content-Encoding: identity",
    "Content-Type: text/plain",
    "Content-Type: ",
    "Content-Type: application/octet-stream",
    "Origin: http://evil.example",
    "Origin: null",
    "Expect: 100-continue",
    "Accept-Encoding: gzip",
    "Accept-Encoding: deflate, \x80",
    "admin-key: x",
    "admin_key: x",
    "X: a\0b",
    "A: " + "b" * 20_000,
    *(f"A{number}: b" for number in range(3)),
    "Connection: close",
    "Upgrade: h2c",
    "Connection: keep-alive, admin-key",
    "TE: trailers",
    "Content-Length: 3",
    "Range: bytes=0-1",
    "Cookie: a=b",
    "triton_grpc_error: true",
    "Transfer-Encoding: gzip",
    "Host: evil.example",
    "X-Forwarded-For: 127.0.0.1",
)
PATHS = (
    "/",
    "/v2",
    "/v2/",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    "/v2/models/wide",
    "/v2/models/wide/config",
    "/v2/models/wide/stats",
    "/v2/models/wide/ready",
    "/v2/models/no_such/infer",
    "/v2/models/wide/versions/1/infer",
    "/v2/models/wide/versions/99999999999999999999/infer",
    "/v2/models//infer",
    "/v2/models/wide/versions/0/infer",
    "/v2/repository/index",
    "/v2/repository/models/wide/unload",
    "/v2/logging",
    "/v2/systemsharedmemory/status",
    "/v2/cudasharedmemory/region/r/register",
    "/v2/trace/setting",
    "/v2/models/../repository/index",
    "/v2/models/%2e%2e/logging",
    "/v2/models/wide%2finfer",
    "/V2/health/live",
    "//v2//models//wide//infer",
    "/v2\\models\\wide\\infer",
    "/v2/models/wide/infer?a=b&c",
    "/v2/models/%00/infer",
    "/v2/models/" + "a" * 3000 + "/infer",
    "http://localhost/v2",
    "http://evil.example/v2",
    "/v2/models/wide/generate",
    "/v2/models/text/generate_stream",
    "/metrics",
    "*",
    "v2",
    "/v2/models/wide/trace/setting",
    "/v2/models/wide/infer#",
)
METHODS = ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "QUIT", "post", "P\x01T")


def mutated_request(random: Random) -> bytes:
    """The bytes of a request for `wide` or `text`, right but for one to four things."""
    model, body, headers = _right(random)
    method, path = "POST", f"/v2/models/{model}/{_verb(random)}"
    for _ in range(random.choice((0, 0, 0, 1, 1, 3))):
        body = random.choice(_OF_THE_BODY)(body, random)
    if random.random() < 0.2:
        path = random.choice(PATHS)
    if random.random() < 0.05:
        method = random.choice(METHODS)
    if random.random() < 0.15:
        headers += random.sample(HEADERS, random.choice((1, 1, 1, 5)))
    if random.random() < 0.1:
        headers.append(f"Inference-Header-Content-Length: {random.choice(LENGTHS)}")
    return _as_http(method, path, headers, body, random)


class Sender:
    """Sends them to an address and says how each was answered.

    Args:
        address: `host:port` of the REST proxy.
        timeout_s: for each answer; one that takes longer is "no answer".
        context: for TLS.
        key: sent with each, where there is one.
    """

    def __init__(
        self, address: str, timeout_s: float = 20.0, context: ssl.SSLContext | None = None, key: str = ""
    ) -> None:
        self._context, self._key = context, key
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._timeout_s = timeout_s
        self._connection: socket.socket | None = None

    def send(self, random: Random) -> str:
        """One request; the status as text, or "no answer"."""
        data = mutated_request(random)
        if self._key:
            line, _, rest = data.partition(b"\r\n")
            data = line + f"\r\nx-api-key: {self._key}\r\n".encode() + rest
        for _ in range(2):
            fresh = self._connection is None
            status, keep = self._exchange(data)
            if not keep:
                self.close()
            # A connection kept from before may have been closed meanwhile.
            if status != "no answer" or fresh:
                return status
        return "no answer"

    def _exchange(self, data: bytes) -> tuple[str, bool]:
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=self._timeout_s)
            if self._context is not None:
                self._connection = self._context.wrap_socket(self._connection, server_hostname=self._address[0])
        # The other side may have answered and closed before all was sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self._connection.sendall(data)
        method = data.split(b" ", 1)[0].decode("latin-1")
        response = http.client.HTTPResponse(self._connection, method=method)
        try:
            response.begin()
            response.read()
        except (http.client.HTTPException, OSError):
            return "no answer", False
        finally:
            response.close()
        return str(response.status), not response.will_close

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _verb(random: Random) -> str:
    return random.choice((*("infer",) * 8, "generate", "generate_stream"))


def _right(random: Random) -> tuple[str, bytes, list[str]]:
    """A model and a request for it, JSON alone or with binary data behind it; often a value in it is wrong."""
    headers = ["Content-Type: application/json"] if random.random() < 0.8 else []
    count = random.randint(1, 50)
    tensor: dict[str, Any] = {"name": "x", "shape": [1, count], "datatype": "FP32"}
    raw = b""
    kind = random.randrange(4)
    if kind == 0:
        tensor["data"] = [random.random() for _ in range(count)]
    elif kind == 1:
        tensor |= {"shape": [1, 1], "datatype": "BYTES", "data": ["some text"]}
    elif kind == 2:
        raw = random.randbytes(4 * count)
        tensor["parameters"] = {"binary_data_size": len(raw)}
    else:
        raw = struct.pack("<I", 5) + b"hello"
        tensor |= {"shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
    request: dict[str, Any] = {"inputs": [tensor]}
    if random.random() < 0.3:
        request |= {"outputs": [{"name": "y"}], "id": "a", "parameters": {"priority": 0}}
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        request = _mutated_value(request, random)
    body = json.dumps(request).encode()
    if raw:
        headers.append(f"Inference-Header-Content-Length: {len(body)}")
    return "wide" if kind in (0, 2) else "text", body + raw, headers


def _mutated_value(value: Any, random: Random) -> Any:
    """Go down into an object or a list, and change what is there."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        kind = random.randrange(8)
        if kind == 0:
            del value[key]
        elif kind == 1:
            value[random.choice(NAMES)] = _any_value(random)
        elif kind == 2:
            value[key] = _any_value(random)
        else:
            value[key] = _mutated_value(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        kind = random.randrange(5)
        if kind == 0:
            del value[place]
        elif kind == 1:
            value = value * random.choice((2, 300))
        else:
            value[place] = _mutated_value(value[place], random)
        return value
    return _any_value(random)


def _any_value(random: Random) -> Any:
    if random.random() < 0.9:
        return copy.deepcopy(random.choice(VALUES))
    nested: Any = 1
    for _ in range(random.choice((5, 31, 33, 100))):
        nested = [nested] if random.random() < 0.5 else {"a": nested}
    return nested


def _other_bytes(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    place = random.randrange(len(changed) + 1)
    kind = random.randrange(5)
    if kind == 0 and place < len(changed):
        changed[place] = random.randrange(256)
    elif kind == 1:
        changed[place:place] = random.choice(
            (b"[", b"]", b"{", b"}", b'"', b",", b"\\", b"\\u", b"\0", b"1e999", b"-", b"null", b"\xff", b"[" * 40)
        )
    elif kind == 2:
        del changed[place : place + random.choice((1, 5, 100))]
    elif kind == 3:
        changed = changed[:place]
    return bytes(changed)


def _brackets(body: bytes, random: Random) -> bytes:
    place = random.randrange(len(body) + 1)
    return body[:place] + random.choice((b"[", b'{"a":', b"[[{")) * 20_000 + body[place:]


def _long(body: bytes, random: Random) -> bytes:
    return body + random.choice((b" ", b"\0", b"1,")) * random.choice((1, 1000, 100_000))


_OF_THE_BODY: tuple[Callable[[bytes, Random], bytes], ...] = (
    *((_other_bytes,) * 6),
    lambda body, _: body,
    lambda body, _: body,
    _long,
    _brackets,
)


def _as_http(method: str, path: str, headers: list[str], body: bytes, random: Random) -> bytes:
    """Put together, the body with its length or in chunks; a GET mostly without one."""
    if method in ("GET", "HEAD", "OPTIONS") and random.random() < 0.9:
        body = b""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if random.random() < 0.2:
        lines.append("Transfer-Encoding: chunked")
        size = random.choice((1, 3, 1000))
        pieces = [body[at : at + size] for at in range(0, len(body), size)][:50_000]
        payload = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body)}")
        payload = body
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + payload
