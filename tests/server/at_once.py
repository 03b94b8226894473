"""Threads that run as long as a block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def at_once(count: int, call: Callable[[int, threading.Event], None]) -> Iterator[None]:
    """Run `call` in `count` threads, each with its number and an event that says the block is over; wait
    for them when it is."""
    ended = threading.Event()
    threads = [threading.Thread(target=call, args=(number, ended), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
