"""Announce the step that this process is at to the process that watches over it, if there is one.

Engines are native code on files of strangers: a step that never ends, or that ends the process, can only be named
and cleared away from outside (`tritonkit.cli.watch`). Without a watching process all of this does nothing.
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
"""Longest step by default: engines take minutes for the largest networks, and half an hour for none that was seen."""

_HEAD = struct.Struct("=QdBHH")
_BYTES = 4096
_LONGEST = 1000


@dataclass(frozen=True)
class Seen:
    """The state of a watched process.

    `turn` changes with each announcement. `step` is empty where nothing is bounded: a person's own Python may run for
    as long as it likes. `can_continue` says whether the command can be run again without `model`.
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
        """Announce a step, or with an empty text that none is bounded now."""
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
    """Announce all further steps of this process there."""
    global _board
    _board = board


def limit(seconds: float) -> None:
    """Bound each step by this."""
    if _board is not None:
        _board.limit_s = seconds
        _show()


def can_continue() -> None:
    """Say that the command may be run again without a model whose step had to be ended."""
    if _board is not None:
        _board.can_continue = True
        _show()


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """The steps inside belong to this model."""
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
    """Inside an engine works on a file, for no longer than the limit; each step inside begins the time again."""
    if _board is None:
        yield
        return
    _steps.append(doing)
    _show()
    try:
        yield
    finally:
        _steps.remove(doing)  # not the last one, where threads have steps of their own
        _show()


def unbounded() -> contextlib.AbstractContextManager[None]:
    """Inside a person's own Python runs, which has no limit."""
    return step("")


def _show() -> None:
    if _board is not None:
        _board.write(_steps[-1] if _steps else "")
