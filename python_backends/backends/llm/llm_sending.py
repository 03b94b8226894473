"""Sends the results of a step before the next step is made.

`step()` of the engine holds Python's global lock, so a thread that sends concurrently would run only between two steps.
A response is a message that Triton confirms; while one thread waits for that, another one makes the next.
"""

from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from llm_engine import STOP, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_engine import Engine, Sequence, Step
    from llm_text import AnswerText


class Reply(Protocol):
    """The place for one request's responses, and the state of its caller."""

    text: AnswerText
    deadline: float | None
    """A moment of `time.monotonic()`, seconds."""

    def send(self, text: str, tokens: list[int], logprobs: list[float], end: str | None) -> None:
        """Send one response; the last one has an end."""

    def fail(self, failure: Failure) -> None:
        """Send an error as the last response."""

    def is_cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""


THREADS = 4
"""Threads that send; more than one of them works only while others wait for Triton."""


class Sending:
    """Passes steps to the replies of their sequences.

    Args:
        log: function that takes a line about a failure.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._closed: set[Sequence] = set()
        """Sequences that were answered before the engine has released them."""
        self._engine: Engine | None = None
        self._parts: SimpleQueue[list[Step] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, name=f"llm-sending-{number}", daemon=True) for number in range(1, THREADS)
        ]

    def start(self, engine: Engine) -> None:
        """Begin, with the engine that must know of answers that ended before it."""
        self._engine = engine
        for thread in self._threads:
            thread.start()

    def put(self, steps: list[Step]) -> None:
        """Send the steps of some sequences, one of each, and return when all are sent. For one thread at a time."""
        parts = [part for first in range(THREADS) if (part := steps[first::THREADS])]
        for part in parts[1:]:
            self._parts.put(part)
        for step in parts[0] if parts else ():
            self._guarded(step)
        for _ in parts[1:]:
            self._done.get()

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._parts.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            for step in part:
                self._guarded(step)
            self._done.put(None)

    def _guarded(self, step: Step) -> None:
        """Answer one sequence; a failure there does not affect the others."""
        try:
            self._answer(step)
        except Exception as error:
            self._log(f"a response could not be sent: {error!r}")
            failure = Failure("INTERNAL", f"a response could not be sent: {error}")
            with suppress(Exception):  # the same failure may come again
                step.sequence.reply.fail(failure)
            self._close(step.sequence, step.end is not None, failure)

    def _answer(self, step: Step) -> None:
        sequence, end = step.sequence, step.end
        if sequence in self._closed:
            if end is not None:
                self._closed.discard(sequence)
            return
        reply: Reply = sequence.reply
        text = reply.text.add(step.tokens)
        if isinstance(end, Failure) and not reply.text.stopped:
            reply.fail(end)
            return
        if reply.text.stopped:
            reply.send(text, step.tokens, step.logprobs, STOP)
            self._close(sequence, end is not None, STOP)
        elif isinstance(end, str):
            text += reply.text.end()
            reply.send(text, step.tokens, step.logprobs, STOP if reply.text.stopped else end)
        else:
            reply.send(text, step.tokens, step.logprobs, None)

    def _close(self, sequence: Sequence, ended: bool, end: str | Failure) -> None:
        """Send nothing more; the engine releases the sequence if it has not done so."""
        if not ended and self._engine:
            self._closed.add(sequence)
            self._engine.drop(sequence, end)
