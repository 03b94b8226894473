"""One stream, from its request to its end, for both clients: generators of steps."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from tritonkit.client.observers.events import CallEvent
from tritonkit.client.policy import Sent
from tritonkit.client.reply import Reply, Timing, server_reply
from tritonkit.client.steps import Invoke
from tritonkit.client.wire.answer import stream_response
from tritonkit.client.wire.status import in_stream
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, ServerUnavailable, UsageError

if TYPE_CHECKING:
    from tritonkit.client.core import Core
    from tritonkit.client.policy import Attempt
    from tritonkit.client.request import InferRequest
    from tritonkit.client.steps import Steps

__all__ = ["StreamCall"]

_GRACE_S = 0.25
"""Seconds that the end of a stream may take after its last answer or its error. It usually follows immediately, and an
earlier reset would only be a risk: Triton 2.51 can crash over it."""

_PARAMETERS = {"triton_enable_empty_final_response": True}
"""Makes Triton mark the last answer, by a message without outputs if necessary."""

_ONE_REQUEST = ("x-tritonkit-requests", "1")
"""Tells a gateway that it may wait for the whole request before it determines the model."""


class StreamCall:
    """One request and the replies to it, read by one thread or task at a time.

    Args:
        core: the client's core.
        request: the request to send; its `timeout_s`, if given, is for the whole stream.
    """

    def __init__(self, core: Core, request: InferRequest) -> None:
        self._core = core
        self._request = request
        self._reading = Lock()  # tried, and never waited for
        self._server: Attempt | None = None
        self._stream: Any = None
        self._token: Any = None  # the observers', once they were told
        self._attempts = self._replies = 0
        self._final = self._over = False
        self._began = self._sent = self._last = self._waited_s = 0.0
        self._endpoint = self._version = self._where = ""

    @property
    def under_way(self) -> bool:
        """Whether a server works on it, for this process."""
        return self._stream is not None and not self._over and not self._core.forked

    def next(self, read: bool = True) -> Steps[Reply | None]:
        """The next reply, None at the end; sends the request if that was not done before, and only that
        without `read`.

        Any error ends the stream, here and at the server.
        """
        if self._over:
            return None
        self._core.check_process()
        if not self._reading.acquire(blocking=False):
            raise UsageError(
                f"stream of {self._request.where}",
                found="two threads or tasks read it concurrently",
                wanted="one thread or task that reads it",
            )
        try:
            reply = yield from self._advance(read)
            if read and reply is None:
                yield from self.close()
            return reply
        except BaseException as error:
            if not (yield from self.close(error)) and isinstance(error, ClientError):
                return None  # closed meanwhile
            raise
        finally:
            self._reading.release()

    def _advance(self, read: bool) -> Steps[Reply | None]:
        """Replace a server that certainly did not begin by another, once."""
        if self._token is None:
            yield from self._begin()
        while True:
            try:
                if self._stream is None:
                    yield from self._send()
                return (yield from self._read()) if read else None
            except ServerUnavailable as error:
                self._move(error)

    def _begin(self) -> Steps[None]:
        """Check the request; observers get its first event."""
        core, request = self._core, self._request
        core.check_open()
        self._began = time.perf_counter()
        self._token = core.observers.started(request.key[0])
        request.headers = core.observers.headers(self._token)
        yield from core.checked(request)

    def _send(self) -> Steps[None]:
        """Send the request to a server, and the end of requests.

        The server then ends the stream after the last answer. Without this end, Triton 2.51 can also crash if the
        stream is reset while its model sends the last answer.
        """
        request = self._request
        server = yield from self._core.policy.pick(request.deadline, where=request.where)
        self._server, self._endpoint = server, server.replica.address
        self._where = f"{request.where} at {self._endpoint}"
        self._attempts += 1
        message = request.encode(parameters=_PARAMETERS)
        headers = (*request.headers, _ONE_REQUEST)
        stream = yield Invoke(server.replica.transport.stream, (headers, self._left_s()))
        self._stream = stream
        self._sent = self._last = time.perf_counter()
        if self._over:  # closed while it was opened
            yield Invoke(stream.cancel)
        else:
            yield Invoke(stream.write, (message, self._left_s()))
            yield Invoke(stream.end)

    def _left_s(self) -> float:
        left_s = self._request.deadline - time.monotonic()
        if left_s <= 0:
            raise self._late()
        return left_s

    def _move(self, error: ServerUnavailable) -> None:
        """Drop a server that was lost; raises its error unless another may be used."""
        server, policy = self._server, self._core.policy
        moves = error.unprocessed and not self._replies and self._attempts == 1 and not self._over
        if server is None or not moves:
            raise error
        self._server = self._stream = None
        now = policy.clock()
        server.end(now, error)
        if not policy.may_use_other(now, (server.replica,)):
            raise error

    def _read(self) -> Steps[Reply | None]:
        """The next message as a reply, None if there is no more."""
        if self._final:
            return None
        whole = self._request.timeout_s is not None
        left_s = self._left_s() if whole or not self._replies else self._core.timeout_s
        entered = time.perf_counter()
        try:
            message: memoryview | None = yield Invoke(self._stream.read, (left_s,))
        except DeadlineExceeded as error:
            raise self._late() from error
        finally:
            self._waited_s += time.perf_counter() - entered
        if message is None:
            return None
        if not self._replies and self._server is not None:
            self._server.answered(self._core.policy.clock())
        problem, answer = stream_response(message)
        if problem or answer is None:
            self._final = True  # the server's own end follows
            raise in_stream(problem or "a message that holds neither answer nor error", self._where)
        self._final = answer.parameters.get("triton_final_response") is True
        if self._final and not answer.outputs:
            return None
        now = time.perf_counter()
        sent = Sent(message, self._endpoint, self._attempts, 0.0, now - self._last)
        reply = server_reply(self._request, answer, sent)
        reply.timing.total_s = now - self._sent
        self._last = now
        self._replies += 1
        self._version = answer.version
        return reply

    def _late(self) -> DeadlineExceeded:
        whole_s, each_s = self._request.timeout_s, self._core.timeout_s
        return DeadlineExceeded(
            self._where,
            found=f"no more came in time after {self._replies} replies",
            wanted=f"the next reply within {each_s:.3g} s, the client's timeout_s"
            if whole_s is None
            else f"the end of the stream within timeout_s={whole_s:.3g}",
            todo="allow more time; a stream's timeout_s is for the whole stream",
        )

    def close(self, error: BaseException | None = None) -> Steps[bool]:
        """End the stream, release its server and notify observers, whatever the cause.

        A reader in another thread or task finds the stream at its end. Returns False if it had ended before.
        """
        if self._over:
            return False
        self._over = True
        if self._core.forked:  # it is the parent's
            return True
        try:
            if self._stream is not None:
                yield from self._end(wait=self._final or isinstance(error, InferenceError))
        finally:
            self._settle(error)
        return True

    def _end(self, *, wait: bool) -> Steps[None]:
        """End the stream with the server's own end, if that comes in a moment; otherwise cancel it."""
        until = time.monotonic() + _GRACE_S
        try:
            with suppress(ClientError):
                while wait:
                    left_s = max(until - time.monotonic(), 0.0)
                    message = yield Invoke(self._stream.read, (left_s,))
                    wait = message is not None
        finally:
            yield Invoke(self._stream.cancel)

    def _settle(self, error: BaseException | None) -> None:
        server, self._server = self._server, None
        if server is not None:
            # Closed before anything came says nothing about the server.
            quiet = error is None and not self._replies and not self._final
            server.end(self._core.policy.clock(), InterruptedError("closed") if quiet else error)
        request, token = self._request, self._token
        self._core.forget_stale(request.key, error)
        if token is not None:
            model, version, endpoint = request.key[0], self._version, self._endpoint
            items = getattr(request, "items", 0)  # 0: it was refused
            timing = Timing(time.perf_counter() - self._began, self._waited_s)
            failed = None if error is None else type(error).__name__
            self._core.observers.finished(
                token, CallEvent(model, version, "server", endpoint, self._attempts, items, timing, failed)
            )
