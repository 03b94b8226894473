"""One batcher for each kind of call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tritonkit.client.batching import Adaptive, Batcher, BatcherPool, Item
from tritonkit.client.steps import Sleep, Step, run_blocking


def join(batchers: BatcherPool, key: Any, item: Item, make: Callable[[], Batcher]) -> Generator[Step, Any, Any]:
    """Join the batcher of a key, as a call does."""
    return (yield from batchers.get(key, make).join(item))


class Maker:
    """Makes batchers, and counts them."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.made: list[Any] = []
        self.pause_s = pause_s

    def __call__(self, key: Any) -> Callable[[], Batcher]:
        """The factory of one key's batcher."""

        def make() -> Batcher:
            self.made.append(key)
            return Batcher(Adaptive(), 8, self._send)

        return make

    def _send(self, items: Sequence[Item], deadline: float) -> Generator[Step, Any, Sequence[Any]]:
        if self.pause_s:
            yield Sleep(self.pause_s)
        return [item.arrays for item in items]


def item() -> Item:
    """An item that nobody waits for long."""
    return Item({"x": np.zeros((1, 1))}, 1e12)


def test_one_key_has_one_batcher() -> None:
    """It is made at the first call and used again."""
    batchers, maker = BatcherPool(), Maker()
    for key in ("a", "b", "a"):
        run_blocking(join(batchers, key, item(), maker(key)))
    assert maker.made == ["a", "b"]


def test_the_oldest_unused_one_is_dropped() -> None:
    """No more than `limit` are kept."""
    batchers, maker = BatcherPool(limit=2), Maker()
    for key in ("a", "b", "a", "c", "a", "b"):
        run_blocking(join(batchers, key, item(), maker(key)))
    assert maker.made == ["a", "b", "c", "b"]
    assert len(batchers) == 2


def test_one_in_use_is_never_dropped() -> None:
    """A key whose callers wait keeps its batcher, however many others come."""
    batchers, maker = BatcherPool(limit=1), Maker(pause_s=1.0)
    waiting = join(batchers, "a", item(), maker("a"))
    next(waiting)
    quick = Maker()
    for key in "bcd":
        run_blocking(join(batchers, key, item(), quick(key)))
    second = join(batchers, "a", item(), maker("a"))
    next(second)
    assert maker.made == ["a"]
    waiting.close()
    second.close()
    for key in "ef":
        run_blocking(join(batchers, key, item(), quick(key)))
    assert len(batchers) == 1


def test_threads_at_once_make_one_batcher_a_key() -> None:
    """Sixteen threads over eight keys and room for two: no key ever has two batchers in use."""
    batchers = BatcherPool(limit=2)
    using: dict[int, set[int]] = {key: set() for key in range(8)}
    clashes: list[int] = []
    lock = threading.Lock()

    def send(key: int, name: int, items: Sequence[Item]) -> Generator[Step, Any, Sequence[Any]]:
        with lock:
            using[key].add(name)
            if len(using[key]) > 1:
                clashes.append(key)
        yield Sleep(0.0002)
        with lock:
            using[key].discard(name)
        return [one.arrays for one in items]

    names = iter(range(10**6))

    def make(key: int) -> Batcher:
        name = next(names)
        return Batcher(Adaptive(in_flight=1), 8, lambda items, _: send(key, name, items))

    def work(first: int) -> None:
        for turn in range(50):
            key = (first + turn) % 8
            run_blocking(join(batchers, key, item(), lambda: make(key)))  # noqa: B023

    threads = [threading.Thread(target=work, args=(first,)) for first in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
    assert len(batchers) <= 16
