"""Boxes of detections and of the right answers, for map50_95."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tritonkit.repository.export.ready.answers import RightAnswers
from tritonkit.repository.export.ready.detection import Boxes

__all__ = ["TENSORS", "found_boxes", "true_boxes"]

TENSORS = {
    "boxes": ("box", "boxes"),
    "scores": ("score", "scores"),
    "classes": ("class_id", "classes", "class", "label", "labels"),
}
"""Tensors of a detector, by the names that they may have; `count` says how many boxes count, if there is one."""
_WANTED = "a list of [class, x1, y1, x2, y2] in pixels of the source, or lines of YOLO (class and box)"


def found_boxes(item: Mapping[str, Any], names: Mapping[str, str], answers: RightAnswers) -> Boxes:
    """The detections of one item, without those that fill up the output."""
    import numpy as np

    scores = np.ravel(item[names["scores"]])
    count = int(np.ravel(item["count"])[0]) if "count" in item else None
    kept = np.arange(len(scores)) < count if count is not None else scores > 0
    classes = np.ravel(item[names["classes"]])
    return Boxes(
        item[names["boxes"]].reshape(-1, 4)[kept],
        [_class(one, answers.classes) for one in classes[kept]],
        scores[kept],
    )


def _class(value: Any, names: Sequence[str]) -> int | str:
    """The number of a class; a name that is not among those known stays as it is."""
    if isinstance(value, bytes | str):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return names.index(text) if text in names else text
    return int(value)


def true_boxes(row: int, value: Any, item: Mapping[str, Any], answers: RightAnswers) -> Boxes:
    """The boxes that a row names.

    Raises:
        BuildError: they cannot be read.
    """
    refused: Callable[[str], Exception] = lambda found: answers.refused(row, found, _WANTED)  # noqa: E731
    if isinstance(value, str) and not value.strip().startswith("["):
        return _of_yolo(row, value, item, answers)
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            raise refused("it is not JSON") from None
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == 5 for one in value):
        raise refused("it is not a list of boxes")
    try:
        boxes = [[float(number) for number in one[1:]] for one in value]
    except (TypeError, ValueError):
        raise refused("a box has something else than numbers") from None
    if any(x2 < x1 or y2 < y1 for x1, y1, x2, y2 in boxes):
        raise refused("a box ends before it begins")
    return Boxes(boxes, [_known(row, one[0], answers) for one in value])


def _known(row: int, value: Any, answers: RightAnswers) -> int | str:
    if isinstance(value, str) and not answers.classes and not value.isdigit():
        return value  # the detector gives names, too
    return answers.class_number(row, value, 1 << 62)


def _of_yolo(row: int, text: str, item: Mapping[str, Any], answers: RightAnswers) -> Boxes:
    """Lines of YOLO: class, center and size relative to the image, whose size a step gives."""
    if "image_size" not in item:
        raise answers.refused(
            row, "its boxes are relative to the image, whose size no step gives", "image_size: true of decode_image"
        )
    height, width = (int(size) for size in item["image_size"])
    boxes, classes = [], []
    for line in text.splitlines():
        parts = line.split()
        if not parts:
            continue
        try:
            x, y, w, h = (float(part) for part in parts[1:])
        except ValueError:
            raise answers.refused(row, f"the line {line[:60]!r} is not a box", "class, x, y, width, height") from None
        boxes.append([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height])
        classes.append(_known(row, parts[0], answers))
    return Boxes(boxes, classes)
