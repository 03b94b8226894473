"""What a call that has ended means for the caller: written once for threads and for tasks."""

from __future__ import annotations

from typing import Final

from tritonkit.errors import ClientError, InferenceError
from tritonkit.wire.http2.border import failure, place
from tritonkit.wire.http2.call import Call
from tritonkit.wire.http2.target import Target
from tritonkit.wire.transport import Body

__all__ = ["CANCELLED", "CLOSED", "LAST", "STREAM", "complete", "why"]

CLOSED: Final = "the client was closed while the call was under way"
CANCELLED: Final = "the call was cancelled"
STREAM: Final = "ModelStreamInfer"

LAST: Final = (False, False, True)
"""A call that the peer surely did nothing for is tried on so many connections; whether it is the last."""


def complete(call: Call) -> memoryview | None:
    """The one answer of a unary call that has ended well; None if it has not."""
    return call.answer if call.status == 0 and not call.problem else None


def why(
    call: Call, target: Target, method: str, body: Body | None, timeout_s: float | None
) -> ClientError:
    """The error of a call that has ended without its answer."""
    where = place(target.name, method, body)
    for said in (CLOSED, CANCELLED):
        if said in (call.lost, call.problem):
            return InferenceError(where, found=said)
    if method == STREAM and call.status == 0 and not call.problem:
        return InferenceError(where, found="the stream has ended")
    return failure(call, where, timeout_s, target.has_key)
