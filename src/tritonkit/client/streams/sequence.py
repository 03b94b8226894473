"""Sequences for threads and for tasks: successive calls at one server; their common part is steps."""

from __future__ import annotations

import secrets
import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from tritonkit.client.inputs import merged_inputs
from tritonkit.client.log import logger
from tritonkit.client.reply import Reply, server_reply
from tritonkit.client.request import InferRequest
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.client.wire.answer import decode
from tritonkit.errors import CircuitOpen, ClientError, InvalidInput, Overloaded, ServerUnavailable, UsageError

if TYPE_CHECKING:
    from collections import abc

    from tritonkit.client.core import Core
    from tritonkit.client.policy import Attempt, Sent
    from tritonkit.client.request import ModelKey
    from tritonkit.client.steps import Steps
    from tritonkit.client.wire.parameters import Parameter

__all__ = ["AsyncSequence", "Sequence"]

_PARTING_S = 1.0  # seconds for the end of a sequence that is left because of an error
_LONGEST_ID = 128  # bytes, Triton's limit for a correlation id that is text

_NEW, _OPEN, _ENDED = "is called outside of its `with` block", "is in use", "has ended"
_LOST = "lost its server, which held its state"


class _Sequence:
    """One sequence.

    Args:
        core: the client's core.
        key: the model and version.
        correlation_id: names the sequence at the server, 1 to 2**63 - 1 or text up to 128 bytes; None
            draws a number.

    Raises:
        UsageError: Triton does not accept the id.
    """

    def __init__(self, core: Core, key: ModelKey, correlation_id: int | str | None = None) -> None:
        self.correlation_id = _checked_id(key, correlation_id)
        """The name of the sequence at the server."""
        self._core = core
        self._key = key
        self._calling = Lock()  # tried, and never waited for
        self._state = _NEW
        self._answered = False
        self._server: Attempt | None = None
        self._last: InferRequest | None = None  # the latest that the model may have seen

    def _enter(self) -> None:
        """Begin the block; nothing is sent."""
        self._core.check_process()
        if self._state != _NEW:
            raise self._misused(self._state)
        self._state = _OPEN

    def _call(self, request: InferRequest, last: bool) -> Steps[Reply]:
        """Send one call to the sequence's server, again only if the server certainly did not begin with it."""
        self._core.check_process()
        if self._state != _OPEN:
            raise self._misused(self._state)
        if not self._calling.acquire(blocking=False):
            raise self._misused("is called while another of its calls is under way")
        try:
            return (yield from self._core.observed(request, self._predict(request, last)))
        finally:
            self._calling.release()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        """End the block and the sequence, at the server too; an unreachable server forgets it by itself."""
        state, self._state = self._state, _ENDED
        if self._core.forked:  # it is the parent's
            return
        last, server, seconds = self._last, self._server, self._core.timeout_s
        try:
            if state == _OPEN and last is not None and server is not None:
                left_s = seconds if error is None else min(seconds, _PARTING_S)
                last.deadline = time.monotonic() + left_s
                yield from self._send(last, server, start=False, end=True)
        except (ClientError, UsageError) as failed:
            if error is None:
                logger.warning("the end of a sequence was not accepted: %s", failed)
        finally:
            self._release()

    def _predict(self, request: InferRequest, last: bool) -> Steps[Reply]:
        started, core = time.perf_counter(), self._core
        core.check_open()
        yield from core.checked(request)
        server = self._server
        if server is None:
            server = yield from core.policy.pick(request.deadline, where=request.where)
            server.only_hold(core.policy.clock())
            self._server = server
        before, self._last = self._last, request
        try:
            sent = yield from self._send(request, server, start=not self._answered, end=last)
            self._answered = True
            answer = decode(sent.body)
        except ClientError as error:
            if isinstance(error, CircuitOpen | Overloaded | InvalidInput):
                self._last = before  # refused: no model has seen it
            elif isinstance(error, ServerUnavailable):
                self._last = None
                self._release()
                if self._answered:
                    self._state = _LOST
            core.forget_stale(request.key, error)
            raise
        if last:
            self._state = _ENDED
            self._release()
        reply = server_reply(request, answer, sent)
        reply.timing.total_s = time.perf_counter() - started
        return reply

    def _send(self, request: InferRequest, server: Attempt, *, start: bool, end: bool) -> Steps[Sent]:
        name = self.correlation_id
        named = {"sequence_id": name, "sequence_start": start, "sequence_end": end}
        return self._core.policy.call(
            "ModelInfer",
            request.encode(parameters=named),
            request.deadline,
            where=request.where,
            headers=request.headers,
            replica=server.replica,
        )

    def _release(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.end(self._core.policy.clock())

    def _misused(self, problem: str) -> UsageError:
        return UsageError(
            f"sequence {self.correlation_id} of model {self._key[0]}",
            found=f"the sequence {problem}",
            wanted="calls one after the other, inside `with model.sequence() as sequence:`",
            todo="begin a new sequence for other inputs",
        )


class Sequence(_Sequence):
    """Calls that share state in one server, for a model with `sequence_batching`: a context manager.

    All of them go to the server that got the first. A call that may have begun is never sent again, and one ends
    before the next begins. They take places in the client's in-flight limit as other calls do.

    Leaving the block ends the sequence at the server, so that its state is freed. If no call was the
    `last`, the latest inputs are sent again as the end, and that answer is dropped: send the
    last call yourself if its answer matters. After an exception in the block, this takes 1 s at most.
    """

    def predict(
        self,
        *,
        inputs: abc.Mapping[str, Any] | None = None,
        outputs: abc.Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        last: bool = False,
        parameters: abc.Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | abc.Mapping[str, int] | None = None,
        **named: Any,
    ) -> Reply:
        """Send the next inputs of the sequence and wait for the answer; see `Model.predict`.

        Args:
            inputs: values by name.
            outputs: names of the outputs to request; None requests all.
            timeout_s: seconds for this call; the client's if None.
            priority: Triton's.
            last: ends the sequence; no call may follow.
            parameters: values for the model that are not tensors, by name.
            request_id: comes back as `Reply.request_id`.
            classification: the number of best classes to give in place of an output's values.
            **named: values by input name.

        Raises:
            DeadlineExceeded: no answer in time; the state may or may not include these inputs.
            ServerUnavailable: no server answers. After a first answer the state is lost too: begin a new sequence.
            UsageError: outside of the block, after the end or the loss of the server, or while
                another call of the sequence is under way.
            ClientError: the same errors as `Model.predict`; the sequence may go on.
        """
        values = merged_inputs(self._key[0], inputs, named)
        request = InferRequest(
            self._key, values, outputs, timeout_s, priority, None, parameters, request_id, classification
        )
        return run_blocking(self._call(request, last))

    def __enter__(self) -> Sequence:
        """Begin the block; the server learns of the sequence from its first call."""
        self._enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the sequence, unless a call has ended it."""
        run_blocking(self._leave(error))


class AsyncSequence(_Sequence):
    """`Sequence` for tasks."""

    async def predict(
        self,
        *,
        inputs: abc.Mapping[str, Any] | None = None,
        outputs: abc.Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        last: bool = False,
        parameters: abc.Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | abc.Mapping[str, int] | None = None,
        **named: Any,
    ) -> Reply:
        """Send the next inputs of the sequence and wait for the answer; see `Sequence.predict`."""
        values = merged_inputs(self._key[0], inputs, named)
        request = InferRequest(
            self._key, values, outputs, timeout_s, priority, None, parameters, request_id, classification
        )
        return await run_async(self._call(request, last))

    async def __aenter__(self) -> AsyncSequence:
        """Begin the block; the server learns of the sequence from its first call."""
        self._enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the sequence, unless a call has ended it."""
        await run_async(self._leave(error))


def _checked_id(key: ModelKey, correlation_id: int | str | None) -> int | str:
    if correlation_id is None:
        return secrets.randbelow(2**63 - 1) + 1
    if isinstance(correlation_id, str):
        fits = 0 < len(correlation_id.encode()) <= _LONGEST_ID
    else:
        fits = type(correlation_id) is int and 0 < correlation_id < 2**63
    if not fits:
        raise UsageError(
            f"sequence of model {key[0]}",
            found=f"correlation_id={correlation_id!r}",
            wanted=f"a whole number from 1 to 2**63 - 1, or text of 1 to {_LONGEST_ID} bytes",
        )
    return correlation_id
