"""Regions of a bitmap: pixels that touch each other, as the points of their outlines."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np


class _Runs(NamedTuple):
    """Pixels next to each other in a row: each from `start` up to, not including, `stop`."""

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray


def outlines(bitmap: np.ndarray, most: int) -> list[np.ndarray]:
    """Points int [n, 2], x and y, around each region of touching pixels and around each hole in one.

    They are the ends of the region's rows, or the pixels next to the hole: their convex hull is that of the contour
    that OpenCV's findContours gives for RETR_LIST.

    Args:
        bitmap: bool [height, width].
        most: of more regions those with the most pixels are taken.
    """
    runs = _runs(bitmap)
    labels = _components(runs, bitmap.shape[1], corners=True)
    regions = _grouped(labels, np.bincount(labels, runs.stop - runs.start, len(labels)), most)
    outer = [_ends(runs, members) for members in regions]
    return (outer + _holes(bitmap))[:most]


def _runs(bitmap: np.ndarray) -> _Runs:
    # Two columns of False follow each row, so that no run goes on in the next. One axis is searched much faster.
    width = bitmap.shape[1] + 2
    flat = np.pad(bitmap, ((0, 0), (1, 1))).ravel()
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    row, start = np.divmod(changes[::2], width)
    return _Runs(row, start, changes[1::2] - row * width)


def _ends(runs: _Runs, members: np.ndarray) -> np.ndarray:
    row = runs.row[members]
    sides = [np.stack([x, row], axis=1) for x in (runs.start[members], runs.stop[members] - 1)]
    return np.concatenate(sides)


def _components(runs: _Runs, width: int, corners: bool) -> np.ndarray:
    """The lowest number of a run in the region of each.

    Args:
        runs: in the order of rows, then columns.
        width: pixels in a row.
        corners: whether pixels touch at their corners too.
    """
    stride, reach = width + 2, 0 if corners else 1
    below = (runs.row + 1) * stride
    first = np.searchsorted(runs.row * stride + runs.stop, below + runs.start + reach, side="left")
    last = np.searchsorted(runs.row * stride + runs.start, below + runs.stop - reach, side="right")
    counts = np.maximum(last - first, 0)
    some = np.repeat(np.arange(len(counts)), counts)
    others = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    labels = np.arange(len(counts))
    while True:
        lowest = np.minimum(labels[some], labels[others])
        joined = labels.copy()
        for sides in (some, others):
            np.minimum.at(joined, labels[sides], lowest)
        while not np.array_equal(joined, joined[joined]):
            joined = joined[joined]
        if np.array_equal(joined, labels):
            return labels
        labels = joined


def _grouped(labels: np.ndarray, sizes: np.ndarray, most: int) -> list[np.ndarray]:
    """The members of the groups, at most `most`: those of the largest sizes."""
    order = np.argsort(labels, kind="stable")
    names, starts = np.unique(labels[order], return_index=True)
    groups = [order[start:stop] for start, stop in pairwise([*starts.tolist(), len(order)])]
    largest = np.sort(np.argsort(-sizes[names], kind="stable")[:most])
    return [groups[number] for number in largest.tolist()]


def _holes(bitmap: np.ndarray) -> list[np.ndarray]:
    """Points around each hole: the region's pixels that have it above, below, or at a side."""
    padded = np.pad(bitmap, 1)
    runs = _runs(~padded)
    labels = _components(runs, padded.shape[1], corners=False)
    if not labels.any():  # all of it is around the regions: the first run begins in the upper left corner
        return []
    lengths = runs.stop - runs.start
    hole = np.zeros(padded.shape, np.intp)
    hole[~padded] = np.repeat(labels, lengths)
    found = []
    for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        next_to = (np.roll(hole, (dy, dx), axis=(0, 1)) * padded).ravel()
        places = np.flatnonzero(next_to)
        y, x = np.divmod(places, padded.shape[1])
        found.append(np.stack([next_to[places], x - 1, y - 1], axis=1))
    points = np.concatenate(found)
    names, numbers = np.unique(points[:, 0], return_inverse=True)
    members = _grouped(numbers.ravel(), np.bincount(numbers.ravel()), len(names))
    return [points[rows, 1:] for rows in members]
