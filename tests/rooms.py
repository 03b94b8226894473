"""A disk without room, without the rights to make one."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_room"]


@contextmanager
def no_room(past_bytes: int = 0) -> Iterator[None]:
    """A file may not grow past the limit, which is how a full disk looks to a writer: the call fails. Python ignores
    the signal that would come with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (past_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
