"""The end of a call on an HTTP/2 connection: its answer, or the error that explains why there is none."""

from __future__ import annotations

from typing import Final

from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.http2.call import COMPRESSED, Call
from tritonkit.client.wire.http2.frames import CANCEL, ENHANCE_YOUR_CALM, REFUSED_STREAM, error_name
from tritonkit.client.wire.status import (
    CANCELLED,
    CLOSED,
    STREAM,
    STREAM_ENDED,
    error_of_status,
    error_of_status_number,
    not_in_time,
    place,
    stopping,
    too_long,
    unreachable,
)
from tritonkit.client.wire.transport import Body
from tritonkit.errors import ClientError, InferenceError

__all__ = ["answer_of", "error_of"]

_HTTP: Final = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
}
"""gRPC's own table of what HTTP statuses mean, for answers that are not gRPC's."""


def answer_of(call: Call) -> memoryview | None:
    """The one answer of a unary call that has ended well; None if it has not."""
    return call.answer if call.status == 0 and not call.problem else None


def error_of(call: Call, target: ChannelConfig, method: str, body: Body | None, timeout_s: float | None) -> ClientError:
    """The error of a call that has ended without its answer; `timeout_s` is None if it had no end."""
    where = place(target.name, method, body)
    for reason in (CLOSED, CANCELLED):
        if reason in (call.lost, call.problem):
            return InferenceError(where, found=reason)
    if call.oversize:
        return too_long(where, call.oversize, call.max_bytes)
    if call.problem:
        todo = "turn compression of answers off at the server" if call.problem == COMPRESSED else ""
        return InferenceError(where, found=f"the answer cannot be read: {call.problem}", todo=todo)
    if call.status == 0:
        empty = "the answer cannot be read: no message in an answer of one"
        return InferenceError(where, found=STREAM_ENDED if method == STREAM else empty)
    if call.status == 4 and timeout_s is not None:
        return not_in_time(where, timeout_s)
    if call.status is not None:
        return _answered(call, call.status, target, where, method)
    if call.lost:
        return unreachable(where, call.lost, unprocessed=call.refused)
    if call.http is not None and call.http != 200:
        return _not_grpc(call.http, where)
    if call.reset is not None:
        return _reset(call.reset, where)
    return InferenceError(where, found="the answer ended without a status")


def _answered(call: Call, status: int, target: ChannelConfig, where: str, method: str) -> ClientError:
    from urllib.parse import unquote

    return error_of_status_number(status, unquote(call.message), where, target.has_key, method)


def _not_grpc(http: int, where: str) -> ClientError:
    problem = f"the HTTP status {http}, and no gRPC"
    if http in (502, 503, 504):  # from a proxy whose server is not there
        return unreachable(where, problem, "check the server behind that proxy")
    return error_of_status(_HTTP.get(http, "UNKNOWN"), problem, where)


def _reset(code: int, where: str) -> ClientError:
    problem = f"the server reset the call ({error_name(code)})"
    if code == REFUSED_STREAM:
        return unreachable(where, f"{problem} before looking at it", "try again", True)
    if code == CANCEL:  # the server's own: the end of calls that this client cancels is never read
        return stopping(f"CANCELLED: {problem}", where)
    return error_of_status("RESOURCE_EXHAUSTED" if code == ENHANCE_YOUR_CALM else "INTERNAL", problem, where)
