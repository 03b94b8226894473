"""Server-sent events, and work that ends when its caller leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

__all__ = ["DONE", "Events", "attended", "event"]

DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer them
]
Result = TypeVar("Result")


def event(payload: Mapping[str, Any]) -> bytes:
    """One event, in one line, because JSON contains no line break."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode("ascii") + b"\n\n"


class Events:
    """A response that begins with its first event: until then an error can have a status.

    Args:
        send: ASGI's function.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def write(self, data: bytes) -> None:
        """Send one or more events; waits for a caller that reads slowly."""
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """The end of the response."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def attended(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work on a request whose body was read; cancelled when the caller leaves.

    Raises:
        ClientDisconnect: the caller left.
    """
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for pending in (task, left):
            pending.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
