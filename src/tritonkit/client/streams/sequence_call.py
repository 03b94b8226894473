"""The calls of one sequence, one after the other, at one server: generators of steps for both clients."""

from __future__ import annotations

import secrets
import time
from threading import Lock
from typing import TYPE_CHECKING

from tritonkit.client.log import logger
from tritonkit.client.reply import Reply, Timing
from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    UsageError,
)
from tritonkit.wire.answer import decode

if TYPE_CHECKING:
    from tritonkit.client.core import Ask, Calls, Key
    from tritonkit.client.inference import Call
    from tritonkit.client.policy import Sent
    from tritonkit.client.policy.lease import Lease
    from tritonkit.client.steps import Steps
    from tritonkit.wire.parameters import Parameter
    from tritonkit.wire.transport import Headers

__all__ = ["Turns"]

_PARTING_S = 1.0
"""How long the end of a sequence may take that is left because of an error."""

_LONGEST_ID = 128
"""Bytes, Triton's limit for a correlation id that is text."""

_NEW, _OPEN, _ENDED = "", "is in use", "has ended"
_LOST = "lost its server, which kept its state"


class Turns:
    """One sequence.

    Args:
        calls: of the client.
        key: the model and version.
        correlation_id: names the sequence at the server; None makes one up.

    Raises:
        UsageError: an id that Triton does not take.
    """

    def __init__(self, calls: Calls, key: Key, correlation_id: int | str | None) -> None:
        self.correlation_id = _checked_id(key, correlation_id)
        self._calls = calls
        self._name = key[0]
        self._turn = Lock()  # tried, and never waited for
        self._state = _NEW
        self._lease: Lease | None = None
        self._last: Call | None = None
        self._begun = self._answered = False

    def enter(self) -> None:
        """The block begins; nothing is sent."""
        self._calls.check_process()
        if self._state != _NEW:
            raise self._misused(self._state)
        self._state = _OPEN

    def predict(self, ask: Ask, last: bool) -> Steps[Reply]:
        """One call, sent to the sequence's server; again only if that surely did not begin with it."""
        self._calls.check_process()
        if self._state != _OPEN:
            raise self._misused(self._state or "is called outside of its `with` block")
        if not self._turn.acquire(blocking=False):
            raise self._misused("is called while another of its calls is under way")
        try:
            return (
                yield from self._calls.watched(
                    self._name, lambda headers: self._predict(ask, last, headers)
                )
            )
        finally:
            self._turn.release()

    def leave(self, error: BaseException | None) -> Steps[None]:
        """The block ends: so does the sequence, at the server too."""
        state, self._state = self._state, _ENDED
        if self._calls.forked:  # it is the parent's
            return
        try:
            if state == _OPEN and self._last is not None and self._begun:
                yield from self._end(self._last, error)
        finally:
            self._release()

    def _predict(self, ask: Ask, last: bool, headers: Headers) -> Steps[Reply]:
        started = time.perf_counter()
        self._calls.check_open()
        call = yield from self._calls.checked(ask, self._calls.deadline(ask), headers)
        try:
            sent = yield from self._sent(call, last)
            answer = decode(sent.body)
        except (InvalidInput, InferenceError, ModelNotFound) as error:
            self._calls.doubt(ask.key, error)
            raise
        if last:
            self._state = _ENDED
            self._release()
        return Reply(
            answer.outputs,
            call.name,
            answer.version,
            Timing(time.perf_counter() - started, sent.wait_s, sent.queue_s),
            "server",
            call.items,
            sent.endpoint,
            sent.attempts,
        )

    def _sent(self, call: Call, last: bool) -> Steps[Sent]:
        """Send one call; notes what is known of the sequence at the server."""
        lease = self._lease
        if lease is None:
            lease = yield from self._calls.policy.pick(call.deadline, where=call.known.where)
            lease.keep()
            self._lease = lease
        before, self._begun, self._last = self._begun, True, call
        try:
            sent = yield from self._message(call, lease, start=not self._answered, end=last)
        except (CircuitOpen, Overloaded, InvalidInput):
            self._begun = before  # turned away: no model has seen it
            raise
        except ServerUnavailable:
            self._release()
            if self._answered:
                self._state = _LOST
            self._begun = False
            raise
        self._answered = True
        return sent

    def _message(self, call: Call, lease: Lease, *, start: bool, end: bool) -> Steps[Sent]:
        parameters: dict[str, Parameter] = {"sequence_id": self.correlation_id}
        if start:
            parameters["sequence_start"] = True
        if end:
            parameters["sequence_end"] = True
        request = call.known.request(call.version, call.outputs)
        body = request.encode(
            call.arrays,
            timeout_s=call.deadline - time.monotonic(),
            priority=call.priority,
            parameters=parameters,
        )
        return self._calls.policy.call(
            "ModelInfer",
            body,
            call.deadline,
            where=call.known.where,
            idempotent=False,
            headers=call.headers,
            replica=lease.replica,
        )

    def _end(self, call: Call, error: BaseException | None) -> Steps[None]:
        """Send the last inputs again, as the end; a server that was not reached forgets by itself."""
        seconds = self._calls.timeout_s
        if error is not None:
            seconds = min(seconds, _PARTING_S)
        call = call._replace(deadline=time.monotonic() + seconds)
        lease = self._lease
        if lease is None:
            return
        try:
            yield from self._message(call, lease, start=False, end=True)
        except (ClientError, UsageError) as failed:
            if error is None:
                logger.warning("the end of a sequence was not taken: %s", failed)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.finish()

    def _misused(self, found: str) -> UsageError:
        return UsageError(
            f"sequence {self.correlation_id} of model {self._name}",
            found=f"the sequence {found}",
            wanted="calls one after the other, inside `with model.sequence() as sequence:`",
            todo="begin a new sequence for other inputs",
        )


def _checked_id(key: Key, given: int | str | None) -> int | str:
    if given is None:
        return secrets.randbelow(2**63 - 1) + 1
    if isinstance(given, str):
        fits = 0 < len(given.encode()) <= _LONGEST_ID
    else:
        fits = type(given) is int and 0 < given < 2**63
    if not fits:
        raise UsageError(
            f"sequence of model {key[0]}",
            found=f"correlation_id={given!r}",
            wanted=f"a whole number from 1 to 2**63 - 1, or text of 1 to {_LONGEST_ID} bytes",
        )
    return given
