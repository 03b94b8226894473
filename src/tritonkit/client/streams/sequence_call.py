"""The calls of one sequence, one after the other, at one server: generators of steps for both clients."""

from __future__ import annotations

import secrets
import time
from threading import Lock
from typing import TYPE_CHECKING

from tritonkit.client.log import logger
from tritonkit.client.reply import Reply, server_reply
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
    from tritonkit.client.core import Core
    from tritonkit.client.policy import ReplicaLease, Sent
    from tritonkit.client.request import InferRequest, ModelKey
    from tritonkit.client.steps import Steps
    from tritonkit.wire.parameters import Parameter

__all__ = ["SequenceCalls"]

_PARTING_S = 1.0
"""How long the end of a sequence may take that is left because of an error."""

_LONGEST_ID = 128
"""Bytes, Triton's limit for a correlation id that is text."""

_NEW, _OPEN, _ENDED = "", "is in use", "has ended"
_LOST = "lost its server, which held its state"


class SequenceCalls:
    """One sequence.

    Args:
        core: of the client.
        key: the model and version.
        correlation_id: names the sequence at the server; None makes one up.

    Raises:
        UsageError: an id that Triton does not take.
    """

    def __init__(self, core: Core, key: ModelKey, correlation_id: int | str | None) -> None:
        self.correlation_id = _checked_id(key, correlation_id)
        self._core = core
        self._name = key[0]
        self._calling = Lock()  # tried, and never waited for
        self._state = _NEW
        self._server: ReplicaLease | None = None
        self._last: InferRequest | None = None
        self._begun = self._answered = False

    def enter(self) -> None:
        """The block begins; nothing is sent."""
        self._core.check_process()
        if self._state != _NEW:
            raise self._misused(self._state)
        self._state = _OPEN

    def predict(self, request: InferRequest, last: bool) -> Steps[Reply]:
        """One call, sent to the sequence's server; again only if that surely did not begin with it."""
        self._core.check_process()
        if self._state != _OPEN:
            raise self._misused(self._state or "is called outside of its `with` block")
        if not self._calling.acquire(blocking=False):
            raise self._misused("is called while another of its calls is under way")
        try:
            return (yield from self._core.observed(request, self._predict(request, last)))
        finally:
            self._calling.release()

    def leave(self, error: BaseException | None) -> Steps[None]:
        """The block ends: so does the sequence, at the server too."""
        state, self._state = self._state, _ENDED
        if self._core.forked:  # it is the parent's
            return
        try:
            if state == _OPEN and self._last is not None and self._begun:
                yield from self._end(self._last, error)
        finally:
            self._release()

    def _predict(self, request: InferRequest, last: bool) -> Steps[Reply]:
        started = time.perf_counter()
        self._core.check_open()
        yield from self._core.checked(request)
        try:
            sent = yield from self._sent(request, last)
            answer = decode(sent.body)
        except (InvalidInput, InferenceError, ModelNotFound) as error:
            self._core.forget_stale(request.key, error)
            raise
        if last:
            self._state = _ENDED
            self._release()
        reply = server_reply(request, answer.version, answer.outputs, sent)
        reply.timing.total_s = time.perf_counter() - started
        return reply

    def _sent(self, request: InferRequest, last: bool) -> Steps[Sent]:
        """Send one call; notes the state of the sequence at the server."""
        server = self._server
        if server is None:
            server = yield from self._core.policy.pick(request.deadline, where=request.where)
            server.keep()
            self._server = server
        before, self._begun, self._last = self._begun, True, request
        try:
            sent = yield from self._send(request, server, start=not self._answered, end=last)
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

    def _send(
        self, request: InferRequest, server: ReplicaLease, *, start: bool, end: bool
    ) -> Steps[Sent]:
        parameters: dict[str, Parameter] = {"sequence_id": self.correlation_id}
        if start:
            parameters["sequence_start"] = True
        if end:
            parameters["sequence_end"] = True
        return self._core.policy.call(
            "ModelInfer",
            request.encode(parameters=parameters),
            request.deadline,
            where=request.where,
            idempotent=False,
            headers=request.headers,
            replica=server.replica,
        )

    def _end(self, last: InferRequest, error: BaseException | None) -> Steps[None]:
        """Send the last inputs again, as the end; a server that was not reached forgets by itself."""
        server, seconds = self._server, self._core.timeout_s
        if server is None:
            return
        if error is not None:
            seconds = min(seconds, _PARTING_S)
        last.deadline = time.monotonic() + seconds
        try:
            yield from self._send(last, server, start=False, end=True)
        except (ClientError, UsageError) as failed:
            if error is None:
                logger.warning("the end of a sequence was not taken: %s", failed)

    def _release(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.finish()

    def _misused(self, found: str) -> UsageError:
        return UsageError(
            f"sequence {self.correlation_id} of model {self._name}",
            found=f"the sequence {found}",
            wanted="calls one after the other, inside `with model.sequence() as sequence:`",
            todo="begin a new sequence for other inputs",
        )


def _checked_id(key: ModelKey, given: int | str | None) -> int | str:
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
