"""Mean average precision of detected boxes, as COCO's evaluation computes it (all areas, at most 100 boxes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Boxes", "mean_average_precision"]

_MOST = 100
_THRESHOLDS = tuple(0.5 + 0.05 * step for step in range(10))


@dataclass(frozen=True)
class Boxes:
    """Boxes of one image: float [count, 4] as x1, y1, x2, y2; a class for each, and for detections a score."""

    boxes: Any
    classes: Sequence[Any]
    scores: Any = None


def mean_average_precision(detections: Sequence[Boxes], truth: Sequence[Boxes]) -> float:
    """The mean over the classes that occur in the truth, and over overlaps (IoU) from 0.5 to 0.95 in steps of 0.05."""
    import numpy as np

    classes = list(dict.fromkeys(one for image in truth for one in image.classes))
    return float(np.mean([_class_precision(detections, truth, one) for one in classes])) if classes else float("nan")


def _class_precision(detections: Sequence[Boxes], truth: Sequence[Boxes], category: Any) -> float:
    """Average precision of a class over all images and thresholds."""
    import numpy as np

    scores, hits, count = [], [], 0
    for detected, expected in zip(detections, truth, strict=True):
        right = np.asarray(expected.boxes, np.float64).reshape(-1, 4)[[one == category for one in expected.classes]]
        own = [index for index, one in enumerate(detected.classes) if one == category]
        boxes = np.asarray(detected.boxes, np.float64).reshape(-1, 4)[own]
        values = np.asarray(detected.scores, np.float64).reshape(-1)[own]
        order = np.argsort(-values, kind="stable")[:_MOST]
        count += len(right)
        scores.append(values[order])
        hits.append(_matched(_overlaps(boxes[order], right)))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    matched = np.concatenate(hits, axis=1)[:, order]
    return float(np.mean([_average_precision(row, count) for row in matched]))


def _overlaps(left: Any, right: Any) -> Any:
    """Intersection over union of each pair: float64 [left, right]."""
    import numpy as np

    low = np.maximum(left[:, None, :2], right[None, :, :2])
    high = np.minimum(left[:, None, 2:], right[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (left, right)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def _matched(overlaps: Any) -> Any:
    """Whether each detection, best first, takes a true box of its own: bool [thresholds, detections]."""
    import numpy as np

    matched = np.zeros((len(_THRESHOLDS), len(overlaps)), bool)
    for place, threshold in enumerate(_THRESHOLDS):
        free = np.ones(overlaps.shape[1], bool)
        for index, row in enumerate(overlaps):
            candidates = np.where(free, row, -1.0)
            if len(candidates) and candidates.max() >= min(threshold, 1 - 1e-10):
                matched[place, index] = True
                free[int(candidates.argmax())] = False
    return matched


def _average_precision(hits: Any, count: int) -> float:
    """The mean of the precision at 101 recalls, each the best at that recall or a higher one."""
    import numpy as np

    right = np.cumsum(hits)
    recall = right / count
    precision = right / (np.arange(len(hits)) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
    return float(np.where(places < len(hits), np.append(precision, 0.0)[np.minimum(places, len(hits))], 0.0).mean())
