"""Announces the current step of this process to the process that watches it, if there is one.

Engines are native code that reads untrusted files. Only another process (`tritonkit.cli.watch`) can name and end a
step that never ends or that kills its process. Without a watching process nothing here has an effect.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["STEP_S", "Board", "Seen", "announce_to", "can_continue", "limit", "of_model", "step", "unbounded"]

STEP_S = 1800.0
"""Default limit of a step: engines take minutes for the largest networks, and never took half an hour."""

_HEAD = struct.Struct("=QdBHH")
_BYTES = 4096
_LONGEST = 1000


@dataclass(frozen=True)
class Seen:
    """The state of a watched process.

    `turn` changes with each announcement. `step` is empty while nothing is bounded: a user's own Python may run for
    any time. `can_continue` tells whether the command can be run again without `model`.
    """

    turn: int
    limit_s: float
    can_continue: bool
    model: str
    step: str


class Board:
    """A page of memory that a process shares with its parent: an announcement costs no system call."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _BYTES)
        self._turn = 0
        self.limit_s, self.can_continue, self.model = STEP_S, False, ""
        self.write("")

    def write(self, step: str) -> None:
        """Announce a step; an empty text means that no step is bounded now."""
        model, words = (text.encode(errors="replace")[:_LONGEST] for text in (self.model, step))
        self._turn += 1
        head = _HEAD.pack(self._turn, self.limit_s, self.can_continue, len(model), len(words))
        whole = head + model + words
        self._page[: len(whole)] = whole

    def read(self) -> Seen:
        """The last announcement."""
        page = self._page[:]
        turn, limit_s, can_continue, model, words = _HEAD.unpack_from(page)
        texts = page[_HEAD.size :]
        return Seen(
            turn,
            limit_s,
            bool(can_continue),
            texts[:model].decode(errors="replace"),
            texts[model : model + words].decode(errors="replace"),
        )


_board: Board | None = None
_steps: list[str] = []


def announce_to(board: Board) -> None:
    """Announce all further steps of this process on this board."""
    global _board
    _board = board


def limit(seconds: float) -> None:
    """Set the limit of each step."""
    if _board is not None:
        _board.limit_s = seconds
        _show()


def can_continue() -> None:
    """Allow the command to be run again without a model whose step had to be ended."""
    if _board is not None:
        _board.can_continue = True
        _show()


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """Attribute the steps inside to this model."""
    if _board is None:
        yield
        return
    before, _board.model = _board.model, name
    try:
        yield
    finally:
        _board.model = before
        _show()


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Bound the time in which an engine works on a file; each step inside starts the time again."""
    if _board is None:
        yield
        return
    _steps.append(doing)
    _show()
    try:
        yield
    finally:
        _steps.remove(doing)  # other threads may have steps of their own
        _show()


def unbounded() -> contextlib.AbstractContextManager[None]:
    """Lift the limit while a user's own Python runs."""
    return step("")


def _show() -> None:
    if _board is not None:
        _board.write(_steps[-1] if _steps else "")
