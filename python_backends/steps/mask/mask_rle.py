"""COCO's run lengths of masks: pixels column by column, runs of 0 and 1 in turn, beginning with 0.

The compressed form is that of rleToString in pycocotools' maskApi.c: from the fourth on, a count is the difference to
the one two before; each is written in groups of five bits, lowest first, as a character from "0" on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np


def runs_of_mask(mask: np.ndarray) -> np.ndarray:
    """The run lengths of a bool mask [height, width]: int64 [runs]."""
    starts, ends = _ends(mask.T.ravel())
    first = 0 if mask.size and mask[0, 0] else 1
    return _counts(starts[first::2], ends[first::2], mask.size)


def runs_of_classes(classes: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """The run lengths of each of `count` classes in a map [height, width] of classes; each pixel has one or none."""
    flat = classes.T.ravel()
    starts, ends = _ends(flat)
    values = flat[starts]
    order = np.argsort(values, kind="stable")
    edges = np.searchsorted(values[order], np.arange(count + 1))
    for one in range(count):
        runs = order[edges[one] : edges[one + 1]]
        yield _counts(starts[runs], ends[runs], flat.size)


def as_json(counts: np.ndarray, size: tuple[int, int], compressed: bool) -> bytes:
    """A mask as pycocotools takes it: {"size": [height, width], "counts": ...}."""
    written = compress(counts) if compressed else counts.tolist()
    return json.dumps({"size": list(size), "counts": written}, separators=(",", ":")).encode()


def compress(counts: np.ndarray) -> str:
    """The characters of run lengths."""
    rest = counts.astype(np.int64)
    rest[3:] -= counts[1:-2]
    columns = []
    going = np.ones(len(rest), dtype=bool)
    while going.any():
        bits = rest & 0x1F
        rest >>= 5
        more = np.where(bits & 0x10, rest != -1, rest != 0)
        columns.append(np.where(going, bits + 32 * more + 48, 0))
        going &= more
    return bytes(np.stack(columns, axis=1).astype(np.uint8).ravel()).replace(b"\0", b"").decode() if columns else ""


def _ends(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First pixel of each run of equal values, and the one after its last."""
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0], changes, [flat.size]]) if flat.size else np.zeros(1, np.int64)
    return edges[:-1], edges[1:]


def _counts(starts: np.ndarray, ends: np.ndarray, size: int) -> np.ndarray:
    """Run lengths of a mask of this size with ones from each start to its end."""
    edges = np.stack([starts, ends], axis=1).ravel()
    counts = np.diff(np.concatenate([[0], edges, [size]]))
    return counts[:-1] if counts[-1] == 0 and len(counts) > 1 else counts
