"""The moment at which Triton's dynamic batcher sends a batch, and its size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SimulatedBatcher", "next_batch"]

_NEVER = float("inf")


@dataclass(frozen=True)
class SimulatedBatcher:
    """The serving of one model: `dynamic_batching` and `instance_group` of Triton's model configuration.

    Args:
        instances: the number that runs concurrently.
        max_batch_size: the largest batch; 1 or 0 without batching.
        preferred: sizes at which a batch leaves without waiting, ascending.
        delay_s: the longest time that the oldest request may wait for others.
    """

    instances: int
    max_batch_size: int
    preferred: tuple[int, ...] = ()
    delay_s: float = 0.0


def next_batch(
    at: Sequence[float], shapes: Sequence[int], head: int, ready: float, batcher: SimulatedBatcher
) -> tuple[float, int]:
    """The moment at which the next batch leaves, and its size.

    It leaves when an instance is free and it has the largest or a preferred size, or its oldest request has waited
    `delay_s`, or the next request in the queue has another shape: Triton does not look past that one.

    Args:
        at: arrival of each request in seconds, ascending.
        shapes: a number for the shape of each request's tensors; empty if all are the same.
        head: the place of the oldest waiting request.
        ready: the moment since which an instance is free, not before `at[head]`.
    """
    most = max(1, batcher.max_batch_size)
    limit = min(head + most, len(at))
    blocked_at = _NEVER
    if shapes:
        end = _alike(shapes, head, limit)
        if end < limit:
            limit, blocked_at = end, at[end]
    waiting = bisect_right(at, ready, head, limit) - head
    if waiting >= most:
        return ready, waiting
    if batcher.preferred and (best := _preferred(batcher.preferred, waiting)):
        return ready, best
    until = min(at[head] + batcher.delay_s, max(ready, blocked_at))
    if until <= ready:
        return ready, waiting
    # It waits for the next size at which it may leave, or for its oldest request's time.
    size_to_reach = min([size for size in batcher.preferred if size > waiting] or [most])
    if head + size_to_reach <= limit and at[head + size_to_reach - 1] <= until:
        return at[head + size_to_reach - 1], size_to_reach
    return until, bisect_right(at, until, head, limit) - head


def _alike(shapes: Sequence[int], head: int, limit: int) -> int:
    """The place of the first request of another shape."""
    shape, end = shapes[head], head + 1
    while end < limit and shapes[end] == shape:
        end += 1
    return end


def _preferred(sizes: tuple[int, ...], waiting: int) -> int:
    """The largest preferred size that can be filled; 0 where there is none."""
    return max((size for size in sizes if size <= waiting), default=0)
