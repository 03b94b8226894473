"""A steady stream of requests while something else happens to the server."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.server.at_once import at_once

__all__ = ["Stream", "steady"]

_CALLERS = 8


@dataclass
class Stream:
    """The count of each answer, and the failures."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """Requests that were answered or failed."""
        return self.answers.total() + len(self.failures)


@contextmanager
def steady(call: Callable[[], str], per_s: float) -> Iterator[Stream]:
    """Call `per_s` times a second for the length of the block, from several threads, on a schedule that
    does not wait for answers (as long as no more than eight are under way)."""
    stream, lock = Stream(), threading.Lock()
    start = time.monotonic()

    def caller(first: int, ended: threading.Event) -> None:
        number = first
        while not ended.wait(max(0.0, start + number / per_s - time.monotonic())):
            _one(call, stream, lock)
            number += _CALLERS

    with at_once(_CALLERS, caller):
        yield stream


def _one(call: Callable[[], str], stream: Stream, lock: threading.Lock) -> None:
    answer = failure = None
    try:
        answer = call()
    except Exception as error:  # whatever it is: an answer did not come
        failure = f"{type(error).__name__}: {error}"
    with lock:
        if answer is not None:
            stream.answers[answer] += 1
        if failure is not None:
            stream.failures.append(failure)
