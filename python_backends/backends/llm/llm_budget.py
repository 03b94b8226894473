"""The work that a chat template may do for one prompt, counted in steps and bytes, so that the same template is refused
on every machine.

A step is a filter, a test, a call, an operator, a piece of a loop's body, or an item that one of these reads. Bytes
count all values that are made, and all that are read from end to end.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from jinja2 import Undefined
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEPS, _STEPS_PER_VALUE, _MOST_STEPS = 1_000_000, 1_000, 8_000_000
"""Initial steps, steps for each value of the messages, and most steps; 1,000 messages have 5,000 values."""
_BYTES, _BYTES_PER_BYTE, _MOST_BYTES = 64 << 20, 64, 512 << 20
DEEPEST = 100
"""Most levels of nested values. Python's own hash of a tuple would end the process at some deeper level."""
_CHARACTER_BYTES = 80
"""Bytes of a text of one character and of its slot in a list."""
_HASHED_BELOW = sys.hash_info.modulus
_SCALARS = (str, int, float, bool, type(None))


class Exhausted(TemplateError):
    """The template needs more work than it may do."""


class Budget:
    """The work that is left for one prompt.

    Args:
        given: the values that the template gets; more values allow more work.
    """

    __slots__ = ("bytes", "most_bytes", "most_steps", "steps")

    def __init__(self, given: Any) -> None:
        self.steps, self.bytes = self.most_steps, self.most_bytes = _MOST_STEPS, _MOST_BYTES
        self.read(given)
        values, size = self.most_steps - self.steps, self.most_bytes - self.bytes
        self.steps = self.most_steps = min(_STEPS + _STEPS_PER_VALUE * values, _MOST_STEPS)
        self.bytes = self.most_bytes = min(_BYTES + _BYTES_PER_BYTE * size, _MOST_BYTES)

    def step(self, count: int = 1) -> None:
        """Take steps.

        Raises:
            Exhausted: there are not that many left.
        """
        self.steps -= count
        if self.steps < 0:
            raise Exhausted(f"it takes more than {self.most_steps:,} steps for these messages")

    def take(self, count: int) -> None:
        """Take bytes.

        Raises:
            Exhausted: there are not that many left.
        """
        self.bytes -= count
        if self.bytes < 0:
            mib = self.most_bytes >> 20
            raise Exhausted(f"it makes more than {mib} MiB of text for these messages")

    def hold(self, value: Any) -> None:
        """Pay for one value, without those in it."""
        self.take(sys.getsizeof(value))

    def read(self, value: Any, times: int = 1) -> None:
        """Pay for a value with all its contents, each as often as it occurs."""
        if type(value) in _SCALARS:
            _hold_number(value)
            self.take(times * sys.getsizeof(value))
            return
        level, depth = [value], 0
        while level:
            depth += 1
            if depth > DEEPEST:
                raise SecurityError(f"values lie within values more than {DEEPEST} deep")
            below: list[Any] = []
            for part in level:
                self.step(times)
                self.take(times * sys.getsizeof(part))
                _hold_number(part)
                # Contents are counted before they are listed, because one value may occur in it a million times.
                inner = _within(part)
                self.take(8 * len(inner))
                below.extend(inner)
            level = below

    def items(self, value: Any) -> Any:
        """Pay for iterating over a value; an iterator becomes a list, so that its length is known."""
        if isinstance(value, str):
            self.step(len(value))
            self.take(_CHARACTER_BYTES * len(value))
        elif hasattr(type(value), "__len__"):
            self.step(len(value))
            self.take(8 * len(value))
        elif not hasattr(type(value), "__iter__"):
            return value  # code that iterates over it reports the error
        else:
            value = list(self._stepping(value))
        return value

    def listed(self, value: Any) -> Any:
        """An iterator as a list, whose values can then be read; another value unchanged."""
        return self.items(value) if hasattr(type(value), "__next__") else value

    def _stepping(self, values: Any) -> Iterator[Any]:
        for value in values:
            self.step()
            self.take(8)
            yield value


def _hold_number(value: Any) -> None:
    """Cost of hashing whole numbers of 61 bits and more, which share hashes: each would be compared with all others
    that share its own."""
    if type(value) is int and abs(value) >= _HASHED_BELOW:
        raise SecurityError(f"whole numbers from {_HASHED_BELOW:,} on are not offered here")


def _within(value: Any) -> list[Any] | tuple[Any, ...]:
    """The values inside a value, for the kinds that Python writes or compares with all their contents."""
    if isinstance(value, str | Undefined):
        return ()
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, Namespace):
        return _within(value._Namespace__attrs)
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, _VIEWS):
        return list(value)
    return ()


_VIEWS = (type({}.keys()), type({}.values()), type({}.items()), set, frozenset)
_CURRENT: ContextVar[Budget] = ContextVar("budget of the template that is rendered")


def current() -> Budget:
    """The budget of the prompt that is being made."""
    return _CURRENT.get()


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """Make everything that is rendered inside the block pay from this budget."""
    token = _CURRENT.set(budget)
    try:
        yield budget
    finally:
        _CURRENT.reset(token)
