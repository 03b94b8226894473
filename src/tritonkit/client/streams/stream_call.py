"""The course of one stream, from its request to its end, for both clients: generators of steps."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from tritonkit.client.observers.events import CallEvent
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.streams.steps import Cancel, Open, Read, Request
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    ServerUnavailable,
    UsageError,
)
from tritonkit.wire.answer import stream_response

if TYPE_CHECKING:
    from tritonkit.client.core import Ask, Calls
    from tritonkit.client.inference import Call
    from tritonkit.client.policy.lease import Lease
    from tritonkit.client.steps import Steps
    from tritonkit.wire.answer import Answer

__all__ = ["Course"]

_GRACE_S = 0.25
"""How long the end of a stream may take after its last answer or its error. It usually follows at once;
resetting the stream before would only be a risk: Triton 2.51 can crash over it."""

_PARAMETERS = {"triton_enable_empty_final_response": True}
"""Makes Triton say that an answer was the last, by a message without outputs if need be."""


class Course:
    """One request and the replies to it, read by one thread or task at a time.

    Args:
        calls: of the client.
        ask: what is asked; its `timeout_s`, if given, is for the whole stream.
    """

    def __init__(self, calls: Calls, ask: Ask) -> None:
        self._calls = calls
        self._ask = ask
        self._reading = Lock()  # tried, and never waited for
        self._call: Call | None = None
        self._lease: Lease | None = None
        self._stream: Any = None
        self._token: Any = None
        self._attempts = 0
        self._replies = 0
        self._final = self._over = False
        self._began = self._sent = self._last = self._waited_s = 0.0
        self._endpoint = self._version = ""

    @property
    def under_way(self) -> bool:
        """Whether a server works on it, for this process."""
        return self._stream is not None and not self._over and not self._calls.forked

    def start(self) -> Steps[None]:
        """Send the request, if that was not done before."""
        if not self._over:
            yield from self._guarded(read=False)

    def next(self) -> Steps[Reply | None]:
        """The next reply, None at the end; sends the request if that was not done before.

        Whatever is raised is the end of the stream, here and at the server.
        """
        return None if self._over else (yield from self._guarded(read=True))

    def close(self) -> Steps[None]:
        """Give up what has not ended; a reader in another thread or task is told it has."""
        yield from self._left(None)

    def _guarded(self, read: bool) -> Steps[Reply | None]:
        self._calls.check_process()
        if not self._reading.acquire(blocking=False):
            raise UsageError(
                f"stream of model {self._ask.key[0]}",
                found="read by two at the same time",
                wanted="one thread or task that reads it",
            )
        try:
            reply = yield from self._tried(read)
            if read and reply is None:
                yield from self._left(None)
            return reply
        except BaseException as error:
            if self._over and isinstance(error, ClientError):
                return None  # closed meanwhile
            yield from self._left(error)
            raise
        finally:
            self._reading.release()

    def _tried(self, read: bool) -> Steps[Reply | None]:
        """A server that surely did not begin may be replaced by another, once."""
        call = self._call or (yield from self._begun())
        while True:
            try:
                if self._stream is None:
                    yield from self._requested(call)
                return (yield from self._read(call)) if read else None
            except ServerUnavailable as error:
                self._move(error)

    def _begun(self) -> Steps[Call]:
        """The call, checked; observers are told."""
        calls, ask = self._calls, self._ask
        calls.check_open()
        self._began = time.perf_counter()
        deadline = calls.deadline(ask)
        self._token = calls.watch.started(ask.key[0])
        headers = calls.watch.headers(self._token)
        self._call = yield from calls.checked(ask, deadline, headers)
        return self._call

    def _requested(self, call: Call) -> Steps[None]:
        """Send the request to a server."""
        lease = yield from self._calls.policy.pick(call.deadline, where=call.known.where)
        self._lease, self._endpoint = lease, lease.address
        self._attempts += 1
        request = call.known.request(call.version, call.outputs)
        body = request.encode(
            call.arrays,
            timeout_s=call.deadline - time.monotonic(),
            priority=call.priority,
            parameters=_PARAMETERS,
        )
        stream = yield Open(lease.transport, call.headers, self._time_left(call))
        self._stream = stream
        self._sent = self._last = time.perf_counter()
        if self._over:  # closed while it was opened
            yield Cancel(stream)
        else:
            yield Request(stream, body, self._time_left(call))

    def _time_left(self, call: Call) -> float:
        left_s = call.deadline - time.monotonic()
        if left_s <= 0:
            raise self._late()
        return left_s

    def _move(self, error: ServerUnavailable) -> None:
        """Let go of a server that was lost; raises its error unless another may be asked."""
        lease = self._lease
        if lease is None:
            raise error
        self._lease = self._stream = None
        lease.finish(error)
        if not error.unprocessed or self._replies or self._attempts > 1 or self._over:
            raise error
        if not self._calls.policy.may_move(lease):
            raise error

    def _read(self, call: Call) -> Steps[Reply | None]:
        """The next message as a reply, None if there is no more."""
        if self._final:
            return None
        message = yield from self._message(call)
        if message is None:
            return None
        if not self._replies and self._lease is not None:
            self._lease.answered()
        error, answer = stream_response(message)
        if error:
            raise InferenceError(self._where, found=error)
        if answer is None:
            raise InferenceError(self._where, found="a message that holds neither answer nor error")
        self._final = answer.parameters.get("triton_final_response") is True
        if self._final and not answer.outputs:
            return None
        return self._reply(call, answer)

    def _message(self, call: Call) -> Steps[memoryview | None]:
        whole = self._ask.timeout_s is not None
        first = whole or not self._replies
        left_s = call.deadline - time.monotonic() if first else self._calls.timeout_s
        if left_s <= 0:
            raise self._late()
        entered = time.perf_counter()
        try:
            message: memoryview | None = yield Read(self._stream, left_s)
        except DeadlineExceeded as error:
            raise self._late() from error
        finally:
            self._waited_s += time.perf_counter() - entered
        return message

    def _late(self) -> DeadlineExceeded:
        whole_s, each_s = self._ask.timeout_s, self._calls.timeout_s
        return DeadlineExceeded(
            self._where,
            found=f"no more came in time after {self._replies} replies",
            wanted=f"the next reply within {each_s:.3g} s, the client's timeout_s"
            if whole_s is None
            else f"the end of the stream within timeout_s={whole_s:.3g}",
            todo="allow more time; timeout_s given to a stream is for the whole of it",
        )

    @property
    def _where(self) -> str:
        return f"model {self._ask.key[0]} at {self._endpoint}"

    def _reply(self, call: Call, answer: Answer) -> Reply:
        now = time.perf_counter()
        timing = Timing(now - self._sent, now - self._last)
        self._last = now
        self._replies += 1
        self._version = answer.version
        return Reply(
            answer.outputs,
            call.name,
            answer.version,
            timing,
            "server",
            call.items,
            self._endpoint,
            self._attempts,
        )

    def _left(self, error: BaseException | None) -> Steps[None]:
        """The end, however it came: of the stream, of the lease, and of what observers see."""
        if self._over:
            return
        self._over = True
        if self._calls.forked:  # it is the parent's
            return
        try:
            if self._stream is not None:
                yield from self._ended(wait=self._final or isinstance(error, InferenceError))
        finally:
            self._settled(error)

    def _ended(self, *, wait: bool) -> Steps[None]:
        """The stream's end: the server's own, if it comes in a moment; else it is given up."""
        until = time.monotonic() + _GRACE_S
        try:
            with suppress(ClientError):
                while wait:
                    message = yield Read(self._stream, max(until - time.monotonic(), 0.0))
                    wait = message is not None
        finally:
            yield Cancel(self._stream)

    def _settled(self, error: BaseException | None) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            # Closed before anything came says nothing about the server.
            quiet = error is None and not self._replies and not self._final
            lease.finish(InterruptedError("closed") if quiet else error)
        if isinstance(error, InvalidInput | InferenceError | ModelNotFound):
            self._calls.doubt(self._ask.key, error)
        token, self._token = self._token, None
        if token is not None:
            self._calls.watch.finished(token, self._event(error))

    def _event(self, error: BaseException | None) -> CallEvent:
        return CallEvent(
            self._ask.key[0],
            self._version,
            "server",
            self._endpoint,
            self._attempts,
            self._call.items if self._call else 0,
            Timing(time.perf_counter() - self._began, self._waited_s),
            None if error is None else type(error).__name__,
        )
