"""Distances of a variant's outputs from the reference's: shares of output elements by powers of ten."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Column", "columns", "used_edges"]

_DIGITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Column:
    """One column: its name on the axis, its meaning in words, its share of all elements, 0 to 1."""

    tick: str
    text: str
    share: float


def used_edges(all_counts: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """The edges from the first to the last that any variant uses, so that all share one axis."""
    every = list(all_counts)
    # Sorted here, because a record in JSON keeps names in alphabetical order.
    edges = sorted({edge for counts in every for edge in counts}, key=_position)
    used = [place for place, edge in enumerate(edges) if any(c.get(edge, 0) for c in every)]
    return tuple(edges[min(used) : max(used) + 1]) if used else ()


def columns(counts: Mapping[str, int], edges: Sequence[str]) -> tuple[Column, ...]:
    """The columns of one variant over these edges."""
    total = sum(counts.values()) or 1
    return tuple(_column(edge, counts.get(edge, 0) / total) for edge in edges)


def _position(edge: str) -> float:
    return math.inf if edge == "more" else float(edge)


def _column(edge: str, share: float) -> Column:
    if edge == "0":
        return Column("0", "equal", share)
    if edge == "more":
        return Column("more", "more than 100", share)
    power = str(int(edge.partition("e")[2]))
    name = f"10{power.translate(_DIGITS)}"
    return Column(name, f"up to {name}", share)
