"""A clock that stands still, servers that follow a script, and a world in which many calls run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any

from tritonkit.client.policy import Policy
from tritonkit.client.steps import Send, Sleep, run_blocking
from tritonkit.client.waiting import Wakeup
from tritonkit.errors import DeadlineExceeded

Script = Callable[["Server"], tuple[float, BaseException | None]]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The moment."""
        return self.now


class Server:
    """A transport whose script says for each call how long it takes and how it ends."""

    def __init__(self, address: str, clock: Clock, script: Script) -> None:
        self.address = address
        self.clock = clock
        self.script = script
        self.calls: list[float] = []
        self.timeouts: list[float] = []
        self.closed = self.renewed = 0
        self.server_name: str | None = None
        self.elsewhere: Any = None

    def outcome(self, timeout_s: float) -> tuple[float, BaseException | None]:
        """Seconds and the error of the next call, cut at its time limit."""
        self.calls.append(self.clock.now)
        self.timeouts.append(timeout_s)
        seconds, error = self.script(self)
        if seconds > timeout_s:
            return timeout_s, DeadlineExceeded(self.address, found="no answer")
        return seconds, error

    def send(self, method: str, body: Any, timeout_s: float, headers: Any = (), elsewhere: Any = None) -> memoryview:
        """The outcome, immediately on the clock."""
        self.elsewhere = elsewhere
        seconds, error = self.outcome(timeout_s)
        self.clock.now += seconds
        if error is not None:
            raise error
        return memoryview(self.address.encode())

    def renew(self) -> None:
        """Counted."""
        self.renewed += 1

    def close(self) -> None:
        """Counted."""
        self.closed += 1


class World:
    """Servers, a policy over them and a clock; runs calls one by one or many at the same time."""

    def __init__(self, addresses: Sequence[str], script: Script, **settings: Any) -> None:
        self.clock = Clock()
        self.script = script
        self.servers: dict[str, Server] = {}
        self.made: list[Server] = []
        self.policy = Policy(addresses, self._connect, clock=self.clock, rng=Random(1), **settings)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._asleep: dict[Wakeup, Callable[[], None]] = {}

    def _connect(self, address: str, server_name: str | None) -> Server:
        server = Server(address, self.clock, self.script)
        server.server_name = server_name
        self.servers[address] = server
        self.made.append(server)
        return server

    @property
    def messages(self) -> int:
        """Sent to all servers together."""
        return sum(len(server.calls) for server in self.made)

    def steps(self, timeout_s: float = 10.0, **options: Any) -> Generator[Any, Any, Any]:
        """A call that may take so long, and run twice unless `idempotent` says otherwise."""
        method = options.pop("method", "ModelInfer")
        options.setdefault("idempotent", True)
        options.setdefault("where", "model m")
        return self.policy.call(method, (b"x",), self.clock.now + timeout_s, **options)

    def call(self, timeout_s: float = 10.0, **options: Any) -> Any:
        """One call alone; sleeping moves the clock."""
        return self.drive(self.steps(timeout_s, **options))

    def drive(self, steps: Generator[Any, Any, Any]) -> Any:
        """Run steps to their end."""
        return run_blocking(self._without_sleep(steps))

    def _without_sleep(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.throw(error) if error is not None else steps.send(result)
            except StopIteration as stop:
                return stop.value
            result = error = None
            if isinstance(step, Sleep):
                self.clock.now += step.seconds
                continue
            try:
                result = yield step
            except BaseException as raised:
                error = raised

    def start(self, at: float, make: Callable[[], Generator[Any, Any, Any]], done: Callable[[Any], None]) -> None:
        """Begin a call at a moment; `done` is given what it returned or raised."""

        def begin() -> None:
            steps = make()
            self._go(steps, lambda: next(steps), done)

        self._at(at, begin)

    def run(self) -> None:
        """Let time pass until nothing is under way."""
        while self._events:
            moment, _, event = heapq.heappop(self._events)
            self.clock.now = max(self.clock.now, moment)
            event()
            self._wake()

    def _wake(self) -> None:
        """Let those go on that sleep on a wakeup and were woken."""
        for wakeup, resume in list(self._asleep.items()):
            wakeup.seconds = 0.0
            if wakeup.block():
                self._at(self.clock.now, resume)

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), event))

    def _go(self, steps: Generator[Any, Any, Any], resume: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            step = resume()
        except StopIteration as stop:
            return done(stop.value)
        except Exception as error:
            return done(error)
        return self._begin(step, steps, done)

    def _begin(self, step: Any, steps: Generator[Any, Any, Any], done: Callable[[Any], None]) -> None:
        def later(seconds: float, resume: Callable[[], Any]) -> None:
            self._at(self.clock.now + seconds, lambda: self._go(steps, resume, done))

        if isinstance(step, Send):
            seconds, error = step.transport.outcome(step.timeout_s)
            body = memoryview(step.transport.address.encode())
            later(seconds, lambda: steps.send(body) if error is None else steps.throw(error))
        elif isinstance(step, Sleep):
            later(step.seconds, lambda: steps.send(None))
        elif isinstance(step, Wakeup):

            def resume() -> None:
                if self._asleep.pop(step, None) is not None:
                    self._go(steps, lambda: steps.send(None), done)

            self._asleep[step] = resume
            self._at(self.clock.now + step.seconds, resume)
        else:
            result = step.block()
            later(0.0, lambda: steps.send(result))
