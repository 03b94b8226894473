"""Answers that wait for their check, which runs while no request is in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tritonkit.client.wire.answer import decode, stream_response
from tritonkit.errors import ClientError, InferenceError
from tritonkit.perf.load.kinds import STREAM
from tritonkit.perf.load.openloop.record import LoadRequest
from tritonkit.perf.load.workload import Outputs

__all__ = ["Checks", "words_of"]

_CHECKED_AT_ONCE: Final = 4
"""Items whose answers are checked before the sockets are looked at again."""
_UNCHECKED_BYTES: Final = 128 << 20
"""Bytes of answers that may wait for their check: beyond that, some are checked while requests are in flight."""
_ANSWER_BYTES: Final = 400
"""Memory of an answer in addition to its own bytes."""


class Checks:
    """Answers in the order in which they came.

    Args:
        verdict: called with the place of a request and the fault of its answer, empty for a right one. A stream has one
            call for its end, and before that one for each wrong reply.
    """

    def __init__(self, verdict: Callable[[int, str], None]) -> None:
        self._verdict = verdict
        self._waiting: deque[tuple[int, LoadRequest, memoryview | None]] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def are_many(self) -> bool:
        """Whether some must be checked now, because of memory."""
        return self._bytes > _UNCHECKED_BYTES

    def add(self, index: int, request: LoadRequest, message: memoryview | None) -> None:
        """Add an answer, or a reply of a stream; None is the stream's end."""
        self._waiting.append((index, request, message))
        self._bytes += _size(message)

    def some(self) -> None:
        """Check the oldest answer."""
        checked = 0
        while checked < _CHECKED_AT_ONCE and self._waiting:
            index, request, message = self._waiting.popleft()
            self._bytes -= _size(message)
            checked += request.items
            wrong = "" if message is None else _wrong(request, message)
            if wrong or message is None or request.kind != STREAM:
                self._verdict(index, wrong)


def words_of(error: ClientError) -> str:
    """The text of an error that is counted."""
    return f"{type(error).__name__}: {error.where}: {error.found}"


def _size(message: memoryview | None) -> int:
    return 0 if message is None else message.nbytes + _ANSWER_BYTES


def _wrong(request: LoadRequest, message: memoryview) -> str:
    try:
        return request.check(_outputs(request, message))
    except InferenceError as error:
        return words_of(error)
    except Exception as error:  # a check of the user's own
        return f"the check failed: {type(error).__name__}: {error}"


def _outputs(request: LoadRequest, message: memoryview) -> Outputs:
    if request.kind != STREAM:
        return decode(message).outputs
    _, answer = stream_response(message)  # an error has ended the stream before
    return {} if answer is None else answer.outputs
