"""Callers that send calls nearly without a pause, check each answer, and record the result of each call."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.chaos.known import STREAM, streamed
from bench.chaos.rest import RestCaller
from tritonkit.client import AsyncClient, Cache, Client
from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    Overloaded,
    ServerStopping,
    ServerUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.chaos.known import Known
    from bench.chaos.stack import Running

__all__ = ["Call", "Load", "cause_of"]

TIMEOUT_S = 30.0
_PAUSE_S = 0.05
_THREADS, _TASKS, _REST_TASKS = 3, 4, 2
_CAUSES: tuple[tuple[type[ClientError], str], ...] = (
    (CircuitOpen, "circuit open"),
    (ServerStopping, "stopping"),
    (ServerUnavailable, "unavailable"),
    (DeadlineExceeded, "deadline"),
    (ModelNotFound, "model away"),
    (Overloaded, "overloaded"),
)


@dataclass(frozen=True)
class Call:
    """A call that has ended.

    Args:
        door: `grpc` (a call by tritonkit's client), `stream` or `rest`.
        model: the called model. began_s, ended_s: seconds since the start of the load.
        cause: the name of its failure; empty if it was answered. right: whether the answer was right. words: the
            message of the failure, or a description of the wrong answer.
    """

    door: str
    model: str
    began_s: float
    ended_s: float
    cause: str = ""
    right: bool = True
    words: str = ""


@dataclass
class Load:
    """Callers of a stack, as a context manager; `calls` has the outcome of each call so far.

    Args:
        running: the stack. truth: the questions and their right answers. seed: the seed for callers and questions.
    """

    running: Running
    truth: Known
    seed: int
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._over = threading.Event()
        self.began = time.monotonic()
        targets: list[Callable[[int], None]] = [*[self._calls] * _THREADS, self._streams]
        targets += [lambda seed: asyncio.run(self._tasks(seed))]
        self._threads = [
            threading.Thread(target=target, args=(self.seed * 1000 + number,)) for number, target in enumerate(targets)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def now_s(self) -> float:
        """Seconds since the load started."""
        return time.monotonic() - self.began

    def _calls(self, seed: int) -> None:
        """Call from one thread with a default client; every third thread also caches answers in Redis."""
        chance = random.Random(seed)  # noqa: S311 - drawn again from the same seed
        redis = {"cache": Cache(redis=self.running.part("redis")["address"])} if seed % 3 == 0 else {}
        with self._client(**redis) as client:
            while not self._over.wait(_PAUSE_S):
                number = chance.randrange(len(self.truth.questions))
                question, began_s = self.truth.questions[number], self.now_s()
                try:
                    model = client.model(question.model)
                    reply = model.predict(**{question.input: question.item}).outputs
                except ClientError as error:
                    self._failed("grpc", question.model, began_s, error)
                else:
                    self._answered("grpc", question.model, began_s, self.truth.right(number, reply))

    def _streams(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        with self._client() as client:
            while not self._over.wait(_PAUSE_S):
                x, began_s = chance.random(4, dtype=np.float32), self.now_s()
                try:
                    with client.model(STREAM).stream(x=x, timeout_s=TIMEOUT_S) as replies:
                        replies_of_stream = [reply["y"] for reply in replies]
                except ClientError as error:
                    self._failed("stream", STREAM, began_s, error)
                else:
                    right = [answer.tolist() for answer in replies_of_stream] == [y.tolist() for y in streamed(x)]
                    self._answered("stream", STREAM, began_s, right)

    async def _tasks(self, seed: int) -> None:
        async with AsyncClient(**self._options()) as client, RestCaller(self.running, self.truth) as rest:
            await asyncio.gather(
                *(self._asks(client, seed + 10 * number) for number in range(_TASKS)),
                *(self._rests(rest, seed + 100 * number) for number in range(1, _REST_TASKS + 1)),
            )

    async def _asks(self, client: AsyncClient, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - drawn again from the same seed
        while not self._over.is_set():
            number = chance.randrange(len(self.truth.questions))
            question, began_s = self.truth.questions[number], self.now_s()
            try:
                model = await client.model(question.model)
                reply = (await model.predict(**{question.input: question.item})).outputs
            except ClientError as error:
                self._failed("grpc", question.model, began_s, error)
            else:
                self._answered("grpc", question.model, began_s, self.truth.right(number, reply))
            await asyncio.sleep(_PAUSE_S)

    async def _rests(self, rest: RestCaller, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - drawn again from the same seed
        while not self._over.is_set():
            number = chance.choice(rest.numbers)
            model, began_s = self.truth.questions[number].model, self.now_s()
            cause, reply, words = await rest.ask(number)
            if cause:
                self.calls.append(Call("rest", model, began_s, self.now_s(), cause, words=words[:300]))
            else:
                self._answered("rest", model, began_s, self.truth.right(number, reply))
            await asyncio.sleep(_PAUSE_S)

    def _client(self, **options: Any) -> Client:
        return Client(**self._options(), **options)

    def _options(self) -> dict[str, Any]:
        running = self.running
        return {
            "address": f"grpcs://{running.address}",
            "tls": running.tls,
            "api_key": running.key,
            "timeout_s": TIMEOUT_S,
        }

    def _answered(self, door: str, model: str, began_s: float, right: bool) -> None:
        self.calls.append(Call(door, model, began_s, self.now_s(), right=right))

    def _failed(self, door: str, model: str, began_s: float, error: ClientError) -> None:
        words = f"{type(error).__name__}: {error.in_a_line()}"[:300]
        self.calls.append(Call(door, model, began_s, self.now_s(), cause_of(error), words=words))


def cause_of(error: ClientError) -> str:
    """The name of a failed call's cause, by the type of its error and the status and words that came with it."""
    if isinstance(error, Overloaded) and "upstream" in error.found and "overflow" not in error.found:
        return "lost by the gateway"
    if type(error) is ServerUnavailable and not error.code:
        return "connection lost"
    for kind, name in _CAUSES:
        if isinstance(error, kind):
            return name
    code = f" {error.code}" if error.code else ""
    return f"{'error' if isinstance(error, InferenceError) else type(error).__name__}{code}"
