"""What is waited for on a stream of messages, by a thread or by a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tritonkit.wire.transport import Body, Headers

__all__ = ["Cancel", "Open", "Read", "Request"]


class Open(NamedTuple):
    """Open a stream to a server; gives it."""

    transport: Any
    headers: Headers
    timeout_s: float

    def block(self) -> Any:
        """See `Transport.stream`."""
        return self.transport.stream(self.headers, self.timeout_s)

    async def wait(self) -> Any:
        """See `AsyncTransport.stream`."""
        return await self.transport.stream(self.headers, self.timeout_s)


class Request(NamedTuple):
    """Send the one request of a stream, and that no other will follow.

    The server then ends the stream after the last answer. What is more, Triton 2.51 can crash when a
    stream is reset that was not ended this way before, while its model sends the last answer.
    """

    stream: Any
    body: Body
    timeout_s: float

    def block(self) -> None:
        """See `Stream.write`, `Stream.end`."""
        self.stream.write(self.body, self.timeout_s)
        self.stream.end()

    async def wait(self) -> None:
        """See `AsyncStream.write`, `AsyncStream.end`."""
        await self.stream.write(self.body, self.timeout_s)
        await self.stream.end()


class Read(NamedTuple):
    """Wait for a stream's next message; gives None at its end."""

    stream: Any
    timeout_s: float

    def block(self) -> memoryview | None:
        """See `Stream.read`."""
        message: memoryview | None = self.stream.read(self.timeout_s)
        return message

    async def wait(self) -> memoryview | None:
        """See `AsyncStream.read`."""
        message: memoryview | None = await self.stream.read(self.timeout_s)
        return message


class Cancel(NamedTuple):
    """Give a stream up, also at the server; nothing happens to one that has ended."""

    stream: Any

    def block(self) -> None:
        """See `Stream.cancel`."""
        self.stream.cancel()

    async def wait(self) -> None:
        """See `AsyncStream.cancel`."""
        await self.stream.cancel()
