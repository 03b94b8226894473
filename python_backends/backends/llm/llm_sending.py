"""Hands answers on from a thread of its own: a response costs a message to Triton, for which the engine need not wait.

Where this thread is behind, the steps that a sequence made meanwhile leave as one response.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from llm_engine import STOP, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_engine import Engine, Sequence, Step
    from llm_text import AnswerText


class Reply(Protocol):
    """Where one request's responses go, and what is known of its caller."""

    text: AnswerText
    deadline: float | None
    """A moment of `time.monotonic()`, seconds."""

    def send(self, text: str, tokens: list[int], logprobs: list[float], end: str | None) -> None:
        """Send one response; the last one has an end."""

    def fail(self, failure: Failure) -> None:
        """Send an error as the last response."""

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""


class Sending:
    """Gives steps to the replies of their sequences, in order.

    Args:
        log: takes a line about what failed.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._queue: SimpleQueue[list[Step] | None] = SimpleQueue()
        self._closed: set[Sequence] = set()
        """Sequences that were answered before the engine has let go of them."""
        self._engine: Engine | None = None
        self._thread = Thread(target=self._run, name="llm-sending", daemon=True)

    def start(self, engine: Engine) -> None:
        """Begin, with the engine that is told of answers that ended before it."""
        self._engine = engine
        self._thread.start()

    def put(self, steps: list[Step]) -> None:
        """Take the steps of some sequences."""
        self._queue.put(steps)

    def close(self) -> None:
        """Send what is left, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        alive = True
        while alive:
            steps, alive = self._next()
            for step in steps:
                self._guarded(step)

    def _next(self) -> tuple[list[Step], bool]:
        """What came, one step for each sequence; False: no more will come."""
        found: dict[Sequence, Step] = {}
        batch = self._queue.get()
        try:
            while batch is not None:
                for step in batch:
                    _merge(found, step)
                batch = self._queue.get_nowait()
        except Empty:
            return list(found.values()), True
        return list(found.values()), False

    def _guarded(self, step: Step) -> None:
        """Answer one sequence; what fails there is no other's trouble."""
        try:
            self._answer(step)
        except Exception as error:
            self._log(f"a response could not be sent: {error!r}")
            failure = Failure("INTERNAL", f"a response could not be sent: {error}")
            with suppress(Exception):  # whatever failed before may fail again
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
        """Nothing more is sent; the engine lets go of it where it has not."""
        if not ended and self._engine:
            self._closed.add(sequence)
            self._engine.drop(sequence, end)


def _merge(found: dict[Any, Step], step: Step) -> None:
    """Add a step to what waits of the same sequence."""
    before = found.get(step.sequence)
    if before is None:
        found[step.sequence] = step
        return
    before.tokens += step.tokens
    before.logprobs += step.logprobs
    before.end = step.end
