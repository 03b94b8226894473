"""The first level: bounds in number, bytes and age."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.cache import Cache, Entry
from tritonkit.client.cache.entry import frozen, size_of
from tritonkit.client.cache.local import LocalStore

if TYPE_CHECKING:
    from tests.client.cache.conftest import Clock


def kept(floats: int = 1) -> Entry:
    """An answer with this many numbers."""
    return Entry("m", "1", {"y": np.zeros(floats, np.float32)})


def memory(clock: Clock, **settings: Any) -> LocalStore:
    """A first level with these settings."""
    return LocalStore(Cache(**settings), clock)


def test_the_least_recently_used_goes_first(clock: Clock) -> None:
    """Beyond `l1` answers, the least recently used one is forgotten."""
    level = memory(clock, l1=2)
    level.put(b"a", kept())
    level.put(b"b", kept())
    assert level.get(b"a") is not None
    level.put(b"c", kept())
    assert level.get(b"b") is None
    assert level.get(b"a") is not None
    assert level.get(b"c") is not None


def test_an_answer_is_forgotten_after_ttl(clock: Clock) -> None:
    """An answer is there until `ttl_s` and not after; a look-up does not lengthen it."""
    level = memory(clock, ttl_s=5.0)
    level.put(b"a", kept())
    clock.turn(4.9)
    assert level.get(b"a") is not None
    clock.turn(0.2)
    assert level.get(b"a") is None


def test_bytes_are_bounded(clock: Clock) -> None:
    """Large answers push others out before `l1_bytes` is passed, whatever their number."""
    level = memory(clock, l1=100, l1_bytes=1_000_000)
    for number in range(50):
        level.put(bytes([number]), kept(floats=25_000))
    there = [number for number in range(50) if level.get(bytes([number])) is not None]
    assert there == list(range(50 - len(there), 50))
    assert 1 <= len(there) <= 10


def test_an_answer_larger_than_all_room_is_not_kept(clock: Clock) -> None:
    """It pushes nothing out, and an older answer under its key is not left in its place."""
    level = memory(clock, l1=10, l1_bytes=10_000)
    level.put(b"a", kept())
    level.put(b"b", kept())
    level.put(b"a", kept(floats=10_000))
    assert level.get(b"a") is None
    assert level.get(b"b") is not None


def test_a_frozen_answer_owns_its_memory() -> None:
    """Keeping a small output does not keep the large message it was a view of, or follow its changes."""
    message = np.arange(1000, dtype=np.float32)
    held = frozen(Entry("m", "1", {"y": message[:2]}))
    message[0] = 9
    assert held.outputs["y"].tolist() == [0, 1]
    base: Any = held.outputs["y"]
    while isinstance(base, np.ndarray):
        base = base.base
    assert len(base) == 8


def test_the_size_follows_the_data() -> None:
    """The bytes counted are at least those of the arrays, and of every cell of BYTES."""
    numbers = Entry("m", "1", {"y": np.zeros(1000)})
    words = np.empty(10, dtype=object)
    words[:] = [bytes(100)] * 10
    assert 8000 <= size_of(numbers) <= 9500
    cells = sum(sys.getsizeof(cell) for cell in words)
    assert cells <= size_of(Entry("m", "1", {"y": words})) <= cells + 1500


def test_threads_may_share_it(clock: Clock) -> None:
    """Eight threads that read and write leave it whole and within its bound."""
    level = memory(clock, l1=50)
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(2000):
                key = bytes([(first * 7 + number) % 200])
                if level.get(key) is None:
                    level.put(key, kept())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(level.get(bytes([number])) is not None for number in range(200)) <= 50
