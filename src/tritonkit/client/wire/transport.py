"""The interface that a client needs of a wire: send a message, and return the answer in time.

Messages are protobuf bytes: a transport knows calls, deadlines and failures, and no tensors. It opens
its connection at the first call and makes a new one after a loss. It never repeats a call that a
server may have seen, and never waits for a server that cannot be reached: the policy does that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from tritonkit.errors import UsageError

__all__ = [
    "LONGEST_TIMEOUT_S",
    "AsyncMessageStream",
    "AsyncTransport",
    "Body",
    "Elsewhere",
    "Headers",
    "MessageStream",
    "Method",
    "Pending",
    "Transport",
    "checked_timeout",
]

Method: TypeAlias = Literal[
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryUnregister",
    "ModelConfig",
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "ServerLive",
    "ServerMetadata",
    "ServerReady",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryUnregister",
]
"""Names of unary calls in Triton's `inference.GRPCInferenceService`."""

Body: TypeAlias = Sequence[bytes | memoryview]
"""One message in pieces that follow each other; large pieces are views of the caller's arrays."""

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Metadata of one call: lower-case names and ASCII values."""

Elsewhere: TypeAlias = Callable[[bool], bool]
"""Called when a server is silent: whether another one takes the call over, which then ends here as `ServerUnavailable`.
`elsewhere(begun)`: whether this one may have begun with it. Transports that are one of several take it as last argument
of `send` and `begin`."""

LONGEST_MESSAGE: Final = 2**31 - 1
"""Protobuf's limit in bytes."""

LONGEST_TIMEOUT_S = 31 * 24 * 3600.0
"""A month: a longer time is a mistake in units, and would overflow the wire's clocks."""


class Pending(Protocol):
    """One call under way."""

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return whether the call has ended, so that `result` need not wait."""

    def result(self) -> memoryview:
        """Wait for the answer, at most until the call's deadline; raises what `send` raises."""

    def cancel(self) -> None:
        """Give the call up, also at the server; `result` then raises `InferenceError`."""


class MessageStream(Protocol):
    """Messages both ways over one `ModelStreamInfer` call; one thread may write while one reads."""

    def write(self, body: Body, timeout_s: float | None = None) -> None:
        """Send one message; `DeadlineExceeded` if the server does not accept it in this time.

        The stream is then unusable: a part of the message may be on its way.
        """

    def end(self) -> None:
        """End the requests; answers may still come."""

    def read(self, timeout_s: float | None = None) -> memoryview | None:
        """The next message, None at the end; `DeadlineExceeded` after `timeout_s` without one."""

    def cancel(self) -> None:
        """Give the stream up, also at the server; does nothing at its end."""


class Transport(Protocol):
    """Carries calls to one server; safe to share between threads."""

    @property
    def address(self) -> str:
        """The address that is called, for messages."""

    def send(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> memoryview:
        """Send a request message and give back the bytes of the response message.

        Args:
            method: the method to call, such as `ModelInfer`.
            body: the request message.
            timeout_s: seconds to wait for the answer; the server gets them as the deadline.
            headers: metadata for this call, in addition to the transport's own.

        Raises:
            ServerUnavailable: no server answers there, or the connection broke.
            Overloaded: the server answered that it has no room.
            DeadlineExceeded: no answer in time.
            ModelNotFound: the server does not serve that model or version.
            InferenceError: any other answer that is an error.
            InvalidInput: the message is too large to travel.
            UsageError: the transport is closed, or used in a forked process.
        """

    def begin(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> Pending:
        """Send as `send` does, and return before the answer has come."""

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> MessageStream:
        """Open a stream for a decoupled model or a sequence.

        Args:
            headers: metadata for it, in addition to the transport's own.
            timeout_s: seconds that a connection may take; None: as long as the transport allows.

        Raises:
            ClientError: the same errors as `send`.
        """

    def renew(self) -> None:
        """Give the next call a connection of its own, which may lead to another server; calls under way stay."""

    def close(self) -> None:
        """Free the connection; a second call does nothing."""


class AsyncMessageStream(Protocol):
    """`MessageStream` for tasks of one event loop."""

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `MessageStream.write`."""

    async def end(self) -> None:
        """End the requests; answers may still come."""

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        """The next message, None at the end; `DeadlineExceeded` after `timeout_s` without one."""

    async def cancel(self) -> None:
        """Give the stream up, also at the server; does nothing at its end."""


class AsyncTransport(Protocol):
    """`Transport` for tasks of one event loop; cancelling the task cancels the call at the server."""

    @property
    def address(self) -> str:
        """The address that is called, for messages."""

    async def send(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> memoryview:
        """See `Transport.send`."""

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> AsyncMessageStream:
        """See `Transport.stream`."""

    def renew(self) -> None:
        """See `Transport.renew`."""

    async def close(self) -> None:
        """Free the connection; a second call does nothing."""


def checked_timeout(timeout_s: float, where: str) -> float:
    """`timeout_s`, if it is above 0 and at most a month; else a `UsageError`."""
    # Written so that NaN, which compares with nothing, is refused too.
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise UsageError(
            where, found=f"timeout_s={timeout_s}", wanted=f"seconds above 0 and at most {LONGEST_TIMEOUT_S:.0f}"
        )
    return timeout_s


def body_size(body: Body) -> int:
    """Bytes of a message in pieces."""
    return sum([len(p) if isinstance(p, bytes) else p.nbytes for p in body])
