"""Non-maximum suppression: of boxes that overlap, the one with the best score stays."""

from __future__ import annotations

import numpy as np

BLOCK = 128  # boxes that are compared with each other at a time


def kept(boxes: np.ndarray, classes: np.ndarray | None, iou_threshold: float, most: int) -> np.ndarray:
    """Indices of the boxes that stay, at most `most`: those of torchvision.ops.nms, or batched_nms with classes.

    Boxes come in blocks, each compared with those that already stay and then with itself, so the cost is the number of
    boxes times the number that stays.

    Args:
        boxes: float32 [n, 4], two corners, best score first.
        classes: int [n]; boxes of different classes do not touch each other. None compares all.
        iou_threshold: a box that overlaps a better one more is left out.
        most: where to end.
    """
    stay = np.empty(min(most, len(boxes)), dtype=np.intp)
    count = 0
    for start in range(0, len(boxes), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(boxes)))
        if count:
            block = block[~_suppressed(boxes, classes, stay[:count], block, iou_threshold).any(axis=0)]
        losers = _suppressed(boxes, classes, block, block, iou_threshold)
        lost = np.zeros(len(block), dtype=bool)
        for place, index in enumerate(block):
            if lost[place]:
                continue
            stay[count] = index
            count += 1
            if count == len(stay):
                return stay
            lost |= losers[place]
    return stay[:count]


def _suppressed(
    boxes: np.ndarray, classes: np.ndarray | None, some: np.ndarray, others: np.ndarray, threshold: float
) -> np.ndarray:
    """Whether each of `some` overlaps each of `others` too much: bool [some, others]."""
    too_much = iou(boxes[some], boxes[others]) > threshold
    return too_much if classes is None else too_much & (classes[some][:, None] == classes[others])


def iou(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes given by two corners: float32 [some, others]; NaN where neither has an area."""
    with np.errstate(all="ignore"):  # boxes of any size and of none
        sides = np.minimum(some[:, None, 2:], others[None, :, 2:]) - np.maximum(some[:, None, :2], others[None, :, :2])
        both = np.maximum(sides, 0).prod(axis=2)
        either = area(some)[:, None] + area(others) - both
        return np.asarray(both / either)


def area(boxes: np.ndarray) -> np.ndarray:
    """Width times height."""
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
