"""Which layers cost most closeness when they lose precision, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

__all__ = ["layers_to_exclude"]

# Layers that are tried one at a time; a deeper network's are tried in groups of neighbors.
MOST_TRIALS = 40

Closeness = Callable[[Collection[str]], float]
"""Closeness of the network when the layers given stay in full precision."""


def layers_to_exclude(
    layers: Sequence[str],
    probe: Closeness,
    closeness: Closeness,
    wanted: float,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...] | None:
    """The fewest layers to leave in full precision so that closeness is as wanted.

    Layers are ranked by how much closeness each costs when it alone loses precision; errors of a few
    parts in a hundred add up, so the first of that ranking are what to leave out. How many is found by
    doubling, then by bisection.

    Args:
        layers: names in the network's order.
        probe: a quick closeness, for the ranking: on a few items.
        closeness: the one that counts.
        wanted: at least this.
        say: is told what goes on.

    Returns:
        The layers in the network's order, or None where leaving out all of them is not enough.
    """
    groups = _groups(layers)
    if closeness(layers) < wanted:
        return None
    costs = []
    for place, group in enumerate(groups):
        say(f"trying layer {place + 1} of {len(groups)}")
        costs.append(1 - probe([name for name in layers if name not in group]))
    ranked = sorted(range(len(groups)), key=lambda place: -costs[place])

    def first(count: int) -> tuple[str, ...]:
        return tuple(name for place in sorted(ranked[:count]) for name in groups[place])

    def enough(count: int) -> bool:
        say(f"leaving {len(first(count))} of {len(layers)} layers in full precision")
        return closeness(first(count)) >= wanted

    low, high = 0, 1  # `low` are not enough
    while high < len(groups) and not enough(high):
        low, high = high, min(2 * high, len(groups))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return first(high)


def _groups(layers: Sequence[str]) -> list[list[str]]:
    """At most `MOST_TRIALS` groups of neighbors, as even as can be."""
    count = min(MOST_TRIALS, len(layers))
    edges = [place * len(layers) // count for place in range(count + 1)] if count else []
    return [list(layers[start:stop]) for start, stop in pairwise(edges)]
