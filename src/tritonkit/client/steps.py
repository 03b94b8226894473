"""One core for threads and tasks: generators decide, steps wait.

The logic of a call (which server, whether to retry, how long to wait) is written once, as a generator
that does no input or output and yields steps. A thread (`block`) or a task of an event loop (`wait`)
performs a step; its result goes back into the generator, and its error is raised there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tritonkit.client.wire.transport import Body, Elsewhere, Headers, Method, Pending

__all__ = ["Invoke", "Send", "Sleep", "Step", "Steps", "run_async", "run_blocking"]

T = TypeVar("T")


class Step(Protocol):
    """One thing to wait for."""

    def block(self) -> Any:
        """Perform the step in this thread."""

    async def wait(self) -> Any:
        """Perform the step in this task."""


Steps: TypeAlias = Generator[Step, Any, T]


def run_blocking(steps: Steps[T]) -> T:
    """Perform the steps in this thread, one after the other, and return the generator's result.

    The generator is closed when this returns: an interrupt may come between two steps, and the resources of the
    generator must not wait for the garbage collector.
    """
    try:
        step = next(steps)
        while True:
            try:
                result = step.block()
            except BaseException as error:  # the generator handles every error, also an interrupt
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


async def run_async(steps: Steps[T]) -> T:
    """Perform the steps in this task; its cancellation cancels the step and is raised in the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step.wait()
            except BaseException as error:  # also CancelledError: the generator must clean up
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


class Send(NamedTuple):
    """Sends one message over a transport; the result is the answer's bytes."""

    transport: Any
    method: Method
    body: Body
    timeout_s: float
    headers: Headers = ()
    elsewhere: Elsewhere | None = None

    def block(self) -> memoryview:
        """See `Transport.send`."""
        answer: memoryview = self.transport.send(*self._arguments())
        return answer

    def begin(self) -> Pending:
        """See `Transport.begin`."""
        pending: Pending = self.transport.begin(*self._arguments())
        return pending

    async def wait(self) -> memoryview:
        """See `AsyncTransport.send`."""
        answer: memoryview = await self.transport.send(*self._arguments())
        return answer

    def _arguments(self) -> tuple[Any, ...]:
        # A user's own transport may lack the last argument, which has no use with one server.
        return self[1:] if self.elsewhere is not None else self[1:5]


class Invoke(NamedTuple):
    """Calls a method that blocks in `Client` and is awaited in `AsyncClient`; the result is the method's."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def block(self) -> Any:
        """Call the transport in this thread."""
        return self.method(*self.arguments)

    async def wait(self) -> Any:
        """Call and await it in this task."""
        return await self.method(*self.arguments)


class Sleep(NamedTuple):
    """A pause of this many seconds."""

    seconds: float

    def block(self) -> None:
        """Sleep."""
        time.sleep(self.seconds)

    async def wait(self) -> None:
        """Let other tasks run."""
        await asyncio.sleep(self.seconds)
