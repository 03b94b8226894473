"""The kinds of transport under one face, for tests that are true of all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritonkit.client.wire.grpcio import AsyncGrpcioTransport, GrpcioTransport
from tritonkit.client.wire.http2 import AsyncHttp2Transport, Http2Transport

__all__ = ["GRPCIO", "HTTP2", "KINDS", "Connect", "connecting"]

Connect = Callable[..., Any]
"""Makes a transport from an address and the options that every kind knows."""


class Tasks:
    """An asynchronous transport with the face of a blocking one: it runs in an event loop's thread."""

    def __init__(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.transport = kind(*args, **kwargs)
        self.address = self.transport.address
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def do(self, work: Any) -> Any:
        """Run a coroutine in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def send(self, *args: Any) -> memoryview:
        """See `Transport.send`."""
        answer: memoryview = self.do(self.transport.send(*args))
        return answer

    def stream(self, *args: Any) -> Any:
        """See `Transport.stream`."""
        return _TaskStream(self, self.do(self.transport.stream(*args)))

    def close(self) -> None:
        """End the loop too."""
        if self.thread.is_alive():
            self.do(self.transport.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


class _TaskStream:
    def __init__(self, tasks: Tasks, stream: Any) -> None:
        self._tasks, self._stream = tasks, stream

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stream, name)
        return lambda *args, **kwargs: self._tasks.do(method(*args, **kwargs))


def _tasks(kind: Callable[..., Any]) -> Connect:
    return lambda *args, **kwargs: Tasks(kind, *args, **kwargs)


HTTP2: dict[str, Connect] = {"http2-threads": Http2Transport, "http2-tasks": _tasks(AsyncHttp2Transport)}
GRPCIO: dict[str, Connect] = {"grpcio-threads": GrpcioTransport, "grpcio-tasks": _tasks(AsyncGrpcioTransport)}
KINDS: dict[str, Connect] = {**HTTP2, **GRPCIO}
"""Every kind that must pass `test_transports.py`."""


@contextmanager
def connecting(kind: Connect) -> Iterator[Connect]:
    """Makes transports of a kind; they are closed at the end."""
    made: list[Any] = []

    def connect(*args: Any, **kwargs: Any) -> Any:
        made.append(kind(*args, **kwargs))
        return made[-1]

    yield connect
    for transport in made:
        transport.close()
