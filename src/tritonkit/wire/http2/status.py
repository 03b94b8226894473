"""What the end of a call means: gRPC's statuses, HTTP's and HTTP/2's errors as errors of ours."""

from __future__ import annotations

import re
from typing import Final

from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    Unsupported,
)
from tritonkit.wire.http2.call import COMPRESSED, LONGEST_MESSAGE, Call
from tritonkit.wire.http2.channel import ChannelConfig
from tritonkit.wire.http2.frames import CANCEL, ENHANCE_YOUR_CALM, ERROR_NAMES, REFUSED_STREAM
from tritonkit.wire.transport import Body

__all__ = [
    "ATTEMPTS", "CANCELLED", "CLOSED", "STATUSES", "STREAM", "answer_of", "error_of", "not_in_time", "place",
    "too_large", "translate", "unreachable",
]  # fmt: skip

CLOSED: Final = "the client was closed while the call was under way"
CANCELLED: Final = "the call was cancelled"
STREAM: Final = "ModelStreamInfer"

ATTEMPTS: Final = (False, False, True)
"""A call that the peer surely did nothing for is tried on so many connections; whether it is the last."""

STATUSES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""gRPC's, each at its number."""

_CHECK_PORT = "check that Triton runs there and that this is its gRPC port (8001 unless set)"
_MORE_TIME = "allow more time with timeout_s, or send less at once"
_SEND_LESS = "send less at a time, or raise the model's queue limits"

_ERRORS: Final[dict[str, tuple[type[ClientError], str, str]]] = {
    "DEADLINE_EXCEEDED": (
        DeadlineExceeded,
        "",
        _MORE_TIME,
    ),
    "NOT_FOUND": (
        ModelNotFound,
        "",
        "see what is served, and why a model is not: `tritonkit models` or client.models()",
    ),
    "UNAVAILABLE": (
        Overloaded,
        "room in the model's queue: the server is up and turned this request away",
        _SEND_LESS,
    ),
    "RESOURCE_EXHAUSTED": (Overloaded, "room at the server", _SEND_LESS),
    "UNIMPLEMENTED": (
        Unsupported,
        "a server with that call: Triton has all, others of the Open Inference Protocol some",
        "check that this is the gRPC port of such a server",
    ),
    "UNAUTHENTICATED": (InferenceError, "", "give the API key or token that the server asks for"),
    "PERMISSION_DENIED": (InferenceError, "", "use a key or token that may make this call"),
}
"""The statuses a caller reacts to; every other one is the server's answer to this request."""

_HTTP: Final = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
                404: "UNIMPLEMENTED", 429: "RESOURCE_EXHAUSTED"}  # fmt: skip
"""What an answer that is not gRPC's means, by gRPC's own table."""

_UNPROCESSED: Final = re.compile(
    r"(\[request id: [^\]]*\] )?"
    r"(Exceeds maximum queue size|Request timeout expired|Request for unknown model: .*|Server not ready"
    r"|Server is stopping, scheduler for model has stopped accepting new inference requests)"
)
"""What Triton says of a request that it has not begun with; in an ensemble, where steps before the one that
refused may have run, it puts other words before these. Proxies use the same statuses for lost servers."""

_GATEWAY: Final = {502, 503, 504}
"""What a proxy says whose server is not there."""

_NAMED: Final = frozenset(
    {"ModelConfig", "ModelInfer", "ModelMetadata", "ModelReady", "ModelStatistics"}
)
"""Calls whose first field is a model's name."""


def translate(status: int, details: str, where: str) -> ClientError:
    """Our error for a gRPC status; every number has one."""
    name = STATUSES[status] if 0 <= status < len(STATUSES) else f"status {status}"
    kind, wanted, todo = _ERRORS.get(name, (InferenceError, "", ""))
    # How gRPC servers refuse a message above their own limit: sending it again cannot help.
    if name == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        kind, wanted, todo = InvalidInput, "a message the server takes", "send less at once"
    refused = kind in (Overloaded, ModelNotFound) and bool(_UNPROCESSED.fullmatch(details))
    if kind is InvalidInput:
        refused = "Received message" in details
    return kind(where, found=f"{name}: {details}", wanted=wanted, todo=todo, unprocessed=refused)


def place(address: str, method: str, body: Body | None) -> str:
    """Where a call went, for messages: the model, if the request names one first, and the address."""
    start = bytes(body[0][:258]) if body and method in _NAMED else b""
    # Field 1, a text: one byte of length is enough for a name to be shown.
    if len(start) < 2 or start[0] != 0x0A or not 0 < start[1] < 0x80:
        return address
    name = start[2 : 2 + start[1]].decode("utf-8", "replace")
    return f"model {name} at {address}"


def not_in_time(where: str, timeout_s: float, what: str = "no answer") -> DeadlineExceeded:
    """The error of a call whose time is up here."""
    return DeadlineExceeded(
        where, found=f"DEADLINE_EXCEEDED: {what} within {timeout_s:.3g} s", todo=_MORE_TIME
    )


def unreachable(
    where: str, found: str, todo: str = _CHECK_PORT, unprocessed: bool = False
) -> ServerUnavailable:
    """The error of a connection that cannot be made or was lost."""
    return ServerUnavailable(where, found=found, todo=todo, unprocessed=unprocessed)


def too_large(where: str, size: int) -> InvalidInput:
    """The error of a request that protobuf cannot carry."""
    return InvalidInput(
        where,
        found=f"a message of {size} bytes",
        wanted=f"at most {LONGEST_MESSAGE} bytes, protobuf's limit",
        todo="send less at once, or use shared memory",
        unprocessed=True,
    )


def answer_of(call: Call) -> memoryview | None:
    """The one answer of a unary call that has ended well; None if it has not."""
    return call.answer if call.status == 0 and not call.problem else None


def error_of(
    call: Call, target: ChannelConfig, method: str, body: Body | None, timeout_s: float | None
) -> ClientError:
    """The error of a call that has ended without its answer."""
    where = place(target.name, method, body)
    for said in (CLOSED, CANCELLED):
        if said in (call.lost, call.problem):
            return InferenceError(where, found=said)
    if method == STREAM and call.status == 0 and not call.problem:
        return InferenceError(where, found="the stream has ended")
    return failure(call, where, timeout_s, target.has_key)


def failure(call: Call, where: str, timeout_s: float | None, key_sent: bool) -> ClientError:
    """What went wrong with a call that has ended; ending well is an error here too if it is empty.

    Args:
        call: the call, ended.
        where: see `place`.
        timeout_s: what the call was allowed; None if it had no end.
        key_sent: whether the client has an admin key.
    """
    if call.oversize:
        return InferenceError(
            where,
            found=f"an answer of {call.oversize} bytes",
            wanted=f"at most {call.max_bytes} bytes",
            todo="if this server may answer so much: Client(..., max_response_bytes=...)",
        )
    if call.problem:
        todo = "turn compression of answers off at the server" if call.problem == COMPRESSED else ""
        return InferenceError(where, found=f"the answer cannot be read: {call.problem}", todo=todo)
    if call.status is not None:
        return _answered(call, call.status, where, timeout_s, key_sent)
    if call.lost:
        return unreachable(where, f"UNAVAILABLE: {call.lost}", unprocessed=call.refused)
    if call.http is not None and call.http != 200:
        return _not_grpc(call.http, where)
    if call.reset is not None:
        return _reset(call.reset, where)
    return InferenceError(where, found="the answer ended without a status")


def _answered(
    call: Call, status: int, where: str, timeout_s: float | None, key_sent: bool
) -> ClientError:
    from urllib.parse import unquote

    details = unquote(call.message)
    if status == 0:
        return InferenceError(
            where,
            found="the answer cannot be read: no message in an answer of one",
        )
    if status == 4 and timeout_s is not None:
        return not_in_time(where, timeout_s)
    # Triton refuses a call without its key with the status of a server that has no room.
    if "protocol is restricted" in details:
        name = translate(status, details, where).found
        return InferenceError(
            where,
            found=name + (", and was sent another" if key_sent else ""),
            wanted="the server's admin key",
            todo="give the server's own: --key-file (of tritonkit serve: .tritonkit/run/*/admin-key in its"
            " project; of docker compose: deploy/docker/keys/admin-key), or admin_key= in Python",
        )
    return translate(status, details, where)


def _not_grpc(http: int, where: str) -> ClientError:
    said = f"the HTTP status {http}, and no gRPC"
    if http in _GATEWAY:
        return unreachable(where, f"UNAVAILABLE: {said}", "check the server behind that proxy")
    name = _HTTP.get(http, "UNKNOWN")
    return translate(STATUSES.index(name), said, where)


def _reset(code: int, where: str) -> ClientError:
    name = ERROR_NAMES[code] if code < len(ERROR_NAMES) else str(code)
    said = f"the server reset the call ({name})"
    if code == REFUSED_STREAM:
        return unreachable(where, f"UNAVAILABLE: {said} before looking at it", "try again", True)
    if code == ENHANCE_YOUR_CALM:
        return translate(STATUSES.index("RESOURCE_EXHAUSTED"), said, where)
    return translate(STATUSES.index("CANCELLED" if code == CANCEL else "INTERNAL"), said, where)
