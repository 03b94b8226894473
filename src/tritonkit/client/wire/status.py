"""The errors that callers see: gRPC's statuses, lost connections and refused messages as classes of `errors`."""

from __future__ import annotations

import re
from typing import Final

from tritonkit.client.wire.transport import LONGEST_MESSAGE, Body, body_size
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ServerStopping,
    ServerUnavailable,
    Unsupported,
)

__all__ = [
    "CANCELLED",
    "CLOSED",
    "STREAM",
    "STREAM_ENDED",
    "checked_size",
    "error_of_status",
    "error_of_status_number",
    "in_stream",
    "not_in_time",
    "place",
    "stopping",
    "too_long",
    "unreachable",
]

CLOSED: Final = "the client was closed while the call was under way"
CANCELLED: Final = "the call was cancelled"
STREAM: Final = "ModelStreamInfer"
STREAM_ENDED: Final = "the stream has ended"

_STATUSES: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC's, each at its number."""

_MORE_TIME = "allow more time with timeout_s, or send less in one call"
_SEND_LESS = "send less at a time, or raise the model's queue limits"

_ERRORS: Final[dict[str, tuple[type[ClientError], str, str]]] = {
    "DEADLINE_EXCEEDED": (DeadlineExceeded, "", _MORE_TIME),
    "NOT_FOUND": (
        ModelNotFound,
        "",
        "see what is served, and why a model is not: `tritonkit models` or client.models()",
    ),
    "UNAVAILABLE": (Overloaded, "room in the model's queue: the server is up and refused this request", _SEND_LESS),
    "RESOURCE_EXHAUSTED": (Overloaded, "room at the server", _SEND_LESS),
    "UNIMPLEMENTED": (
        Unsupported,
        "a server with that call: Triton has all, other servers of the Open Inference Protocol some",
        "check that this is the gRPC port of such a server",
    ),
    "UNAUTHENTICATED": (InferenceError, "", "give the API key or token that the server requires"),
    "PERMISSION_DENIED": (InferenceError, "", "use a key or token that may make this call"),
}
"""The statuses a caller reacts to; every other one is the server's answer to this request."""

_UNPROCESSED: Final = re.compile(
    r"\[request id: [^\]]*\] (Exceeds maximum queue size|Server is stopping, .*)"
    r"|Request timeout expired|Request for unknown model: .*|Server not ready"
    r"|Server is stopping, scheduler for model has stopped accepting new inference requests"
)
"""Triton's messages for a request that it has not begun. In an ensemble, where earlier steps may have run, other words
come first, and a model's own message lacks the request's id. Proxies use the same statuses for lost servers."""

_OF_INFERENCE: Final = frozenset({"ModelInfer", "ModelStreamInfer"})
"""Calls in which a model may choose status and message."""

_NOT_BY_A_MODEL: Final = {
    "NOT_FOUND": re.compile(r"(.*shared memory region.*)?"),
    "UNAVAILABLE": re.compile(
        r"(in ensemble '[^']*', )*(\[request id: [^\]]*\] (Exceeds maximum queue size|.*sequence has been expired)"
        r"|(\[request id: [^\]]*\] )?(Request timeout expired|Server not ready"
        r"|Server exiting|Server is stopping, .*|.* is not at ready state))"
        r"|(upstream (connect error|request timeout|max stream|reset)|no healthy upstream|overflow$"
        r"|failed to connect to all|connections to all backends|Socket closed"
        r"|Connection reset by peer$|Connection refused$|Broken pipe$"
        r"|(Transport|Endpoint|Channel) clos|GOAWAY|keepalive|DNS |name resol|unexpected HTTP|Received http2 header"
        r"|Service Unavailable$|too many requests).*|"
    ),
    "UNIMPLEMENTED": re.compile(
        r"(?i:.*\b(method|rpc)\b.*(not found|unimplemented|not implemented|unsupported|doesn't support).*"
        r"|unknown (service|method) .*|service .* (not found|unimplemented).*|(method )?not implemented!?|unimplemented"
        r"|.*without compression.*)?"
    ),
}
"""Messages of Triton, of gRPC's libraries and of proxies; all others with these statuses are a model's own."""

_NO_VERSION: Final = re.compile(r"(.*[, ])?Request for unknown model: '[^']*' has no available versions")
"""Triton's message for a model that is being loaded or unloaded, as at the server's end."""

_STOPPING: Final = re.compile(
    r"(.*[, ])?(Server not ready|Server is stopping, scheduler for model has stopped accepting new inference requests)"
)

_CANCELLED_THERE: Final = frozenset({"", "CANCELLED", "Cancelled on the server side"})
"""Messages of gRPC's library when a server that ends has cancelled a call itself; a model's own differ."""

_NO_SUCH_MODEL: Final = re.compile(r"(?i)\b(unknown model|model\b.*\b(not found|not exist))")
"""Phrases by which Triton and other servers of its protocol report an unknown model."""

_RESTRICTED: Final = "This protocol is restricted"
"""Prefix of Triton's message for a call that needs a key."""

_NO_REPLICA: Final = "no healthy upstream"
"""Envoy's message if it knows no server for a call."""

_LOST_BEHIND: Final = re.compile(r"upstream (connect error|reset)(?!.*overflow).*")
"""Envoy's message for a call whose server was lost. With `overflow` Envoy itself has no room for it."""

_DECOUPLED: Final = "doesn't support models with decoupled transaction policy"
"""Triton's message for a unary call of a model that streams."""

_PROCESS_DEAD: Final = re.compile(r"(.*[, ])?Stub process '[^']*' is not healthy\.?")
"""Triton's message, an internal error, for a request whose Python process has died, whether or not it had begun. Other
servers still have theirs."""

_OVERDUE: Final = re.compile(r"(UNAVAILABLE: )?the request's timeout has expired")
"""Message of the language models' backend for a request that outlived its caller's `timeout_s`. It races with the
caller's own clock and means the same."""

_CALLS: Final = re.compile(r"Failed for execute the inference request\. Model '([^']+)' is not ready")
"""Message that a Python model gets if it calls a model that is not loaded."""

_NAMED: Final = frozenset({"ModelConfig", "ModelInfer", "ModelMetadata", "ModelReady", "ModelStatistics"})
"""Calls whose first field is a model's name."""


def place(address: str, method: str, body: Body | None) -> str:
    """A call's target, for messages: the model, if the request names one first, and the address."""
    start = bytes(body[0][:258]) if body and method in _NAMED else b""
    # Field 1, a text: one byte of length is enough for a name to be shown.
    if len(start) < 2 or start[0] != 0x0A or not 0 < start[1] < 0x80:
        return address
    name = start[2 : 2 + start[1]].decode("utf-8", "replace")
    return f"model {name} at {address}"


def not_in_time(where: str, timeout_s: float, what: str = "no answer") -> DeadlineExceeded:
    """The error of a call whose time is up here."""
    return DeadlineExceeded(where, found=f"DEADLINE_EXCEEDED: {what} within {timeout_s:.3g} s", todo=_MORE_TIME)


def unreachable(where: str, problem: str, todo: str = "", unprocessed: bool = False) -> ServerUnavailable:
    """The error of a connection that cannot be made or was lost."""
    return ServerUnavailable(
        where,
        found=f"UNAVAILABLE: {problem}",
        todo=todo or "check that Triton runs there and that this is its gRPC port (8001 unless set)",
        unprocessed=unprocessed,
    )


def checked_size(address: str, method: str, body: Body) -> int:
    """Bytes of a request message; `InvalidInput` if protobuf cannot carry it."""
    size = body_size(body)
    if size > LONGEST_MESSAGE:
        raise InvalidInput(
            place(address, method, body),
            found=f"a message of {size} bytes",
            wanted=f"at most {LONGEST_MESSAGE} bytes, protobuf's limit",
            todo="send less in one call, or use shared memory",
            unprocessed=True,
        )
    return size


def too_long(where: str, size: int, most: int) -> InferenceError:
    """The error of an answer that is longer than this client accepts."""
    return InferenceError(
        where,
        found=f"an answer of {size} bytes",
        wanted=f"at most {most} bytes",
        todo="if this server may send such answers: Client(..., max_response_bytes=...)",
    )


def error_of_status_number(status: int, details: str, where: str, key_sent: bool, method: str) -> ClientError:
    """The error of a call that was answered with a status other than OK."""
    name = _STATUSES[status] if status < len(_STATUSES) else f"status {status}"
    # Triton refuses a call without its key with the status of a server that has no room.
    if not details.startswith(_RESTRICTED):
        own = method in _OF_INFERENCE and _is_a_model_s(name, details, where)
        error = _model_s(name, details, where) if own else error_of_status(name, details, where)
        error.code = name
        return error
    return InferenceError(
        where,
        found=f"{name}: {details}" + (", and was sent another" if key_sent else ""),
        wanted="the server's admin key",
        todo="give the server's own: --key-file (of tritonkit serve: .tritonkit/run/*/admin-key in its"
        " project; of docker compose: deploy/docker/keys/admin-key), or admin_key= in Python",
    )


def _is_a_model_s(name: str, details: str, where: str) -> bool:
    """Whether a model chose the status and the message, as far as they show it."""
    pattern = _NOT_BY_A_MODEL.get(name)
    if pattern is None or pattern.fullmatch(details) is not None:
        return False
    # Servers name the model that was called. A model that another model calls is the caller's concern.
    called = where.removeprefix("model ").partition(" at ")[0]
    if _NO_SUCH_MODEL.search(details) is None:
        return True
    named = re.search(rf"(?<!\w){re.escape(called)}(?!\w)", details) is not None
    return not (named or called == where or details.startswith("in ensemble "))


def _model_s(name: str, details: str, where: str) -> ClientError:
    """A model's own error, unchanged. The model ran, so the call may not be safe to repeat.

    A model that is unavailable is `Overloaded` to callers, who wait and try again if that is harmless.
    """
    kind = Overloaded if name == "UNAVAILABLE" else InferenceError
    return kind(where, found=f"{name}: {details}")


def stopping(problem: str, where: str, unprocessed: bool = False) -> ServerStopping:
    """The error of a call to a server that is about to end."""
    return ServerStopping(
        where,
        found=problem,
        wanted="a server that keeps running",
        todo="call again: another server, or this one once it is back, will answer",
        unprocessed=unprocessed,
    )


def in_stream(details: str, where: str) -> ClientError:
    """The error in a message of a stream. It has no status, so only its text is read."""
    if _PROCESS_DEAD.fullmatch(details):
        return _process_dead(where, details)
    if _OVERDUE.fullmatch(details):
        return DeadlineExceeded(where, found=details, todo=_MORE_TIME)
    return InferenceError(where, found=details)


def _process_dead(where: str, problem: str) -> ServerUnavailable:
    return ServerUnavailable(
        where,
        found=problem,
        wanted="a Python process of the model",
        todo="`tritonkit serve` loads such a model again by itself; its log says why the process ended",
    )


def error_of_status(name: str, details: str, where: str) -> ClientError:
    """Our error for a gRPC status."""
    if name == "UNAVAILABLE" and details == _NO_REPLICA:
        return unreachable(where, details, "see which replicas that gateway has, and why none is well", True)
    if name == "INTERNAL" and _PROCESS_DEAD.fullmatch(details):
        return _process_dead(where, f"{name}: {details}")
    if name == "UNIMPLEMENTED" and _DECOUPLED in details:
        return Unsupported(
            where,
            found=f"{name}: {details}",
            wanted="a stream, which gives any number of answers",
            todo="client.model(...).stream(...), or tritonkit call --stream",
        )
    if name == "CANCELLED" and details in _CANCELLED_THERE:
        return stopping(f"{name}: the server has cancelled the call itself", where)
    if name == "UNAVAILABLE" and _STOPPING.fullmatch(details):
        return stopping(f"{name}: {details}", where, bool(_UNPROCESSED.fullmatch(details)))
    kind, expected, todo = _ERRORS.get(name, (InferenceError, "", ""))
    if kind is ModelNotFound and _NO_VERSION.fullmatch(details):
        kind = ModelNotReady
    if name == "UNAVAILABLE" and _LOST_BEHIND.fullmatch(details):
        expected = "a server behind that proxy that keeps running"
        todo = "call again, if the call may run twice; see which of the servers there has ended, and why"
    unprocessed = kind in (Overloaded, ModelNotFound, ModelNotReady) and bool(_UNPROCESSED.fullmatch(details))
    # gRPC servers refuse a message above their own limit in this way: sending it again cannot help.
    if name == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        kind, expected, todo = InvalidInput, "a message that the server accepts", "send less in one call"
        unprocessed = "Received message" in details
    if called := _CALLS.search(details):
        todo = (
            f"name {called[1]} in `calls` of the model whose Python calls it (network.calls in its model.yaml), so that"
            f" it is loaded with it; or serve {called[1]} too, or load it again: tritonkit reload {called[1]}"
        )
    return kind(where, found=f"{name}: {details}", wanted=expected, todo=todo, unprocessed=unprocessed)
