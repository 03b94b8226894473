"""Boxes of detections and of the right answers, for map50_95."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tritonkit.repository.export.ready.answers import RightAnswers, is_whole_number
from tritonkit.repository.export.ready.detection import Boxes

__all__ = ["TENSORS", "detected_boxes", "true_boxes"]

TENSORS = {
    "boxes": ("box", "boxes"),
    "scores": ("score", "scores"),
    "classes": ("class_id", "classes", "class", "label", "labels"),
}
"""Tensors of a detector, by the names that they may have; `count` says how many boxes count, if there is one."""
_BOXES = "a list of [class, x1, y1, x2, y2] in pixels of the source, or lines of YOLO (class and box)"


def detected_boxes(item: Mapping[str, Any], names: Mapping[str, str], answers: RightAnswers) -> Boxes:
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
    """The number of a class, -1 for NaN; a name that is not among these names stays as it is."""
    if isinstance(value, bytes | str):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return names.index(text) if text in names else text
    return int(value) if math.isfinite(value) else -1


def true_boxes(
    row: int, value: Any, item: Mapping[str, Any], tensors: Mapping[str, str], answers: RightAnswers
) -> Boxes:
    """The boxes that a row names.

    Raises:
        BuildError: they cannot be read, or name classes by numbers and the detector by names, or the other way round.
    """
    refused: Callable[[str], Exception] = lambda found: answers.refused(row, found, _BOXES)  # noqa: E731
    named = item[tensors["classes"]].dtype.kind in "OSU"
    if isinstance(value, str) and not value.strip().startswith("["):
        return _of_yolo(row, value, item, named, answers)
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
    if not all(math.isfinite(number) for box in boxes for number in box):
        raise refused("a box has a number that is not finite")
    if any(x2 < x1 or y2 < y1 for x1, y1, x2, y2 in boxes):
        raise refused("a box ends before it begins")
    return Boxes(boxes, [_right_class(row, one[0], named, answers) for one in value])


def _right_class(row: int, value: Any, named: bool, answers: RightAnswers) -> int | str:
    """The class of a right box, in the form in which the detector gives classes (`named` says: by names)."""
    if answers.classes:
        return answers.class_number(row, value, 1 << 62)
    is_name = isinstance(value, str) and not is_whole_number(value)
    if is_name != named:
        form, other = ("names", "number") if named else ("numbers", "name")
        raise answers.refused(
            row,
            f"the class {value!r} is a {other}, and the detector gives {form}",
            f"{form} of classes; or both in one file: samples: {{..., classes: FILE}}",
        )
    return value if is_name else answers.class_number(row, value, 1 << 62)


def _of_yolo(row: int, text: str, item: Mapping[str, Any], named: bool, answers: RightAnswers) -> Boxes:
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
            if not all(map(math.isfinite, (x, y, w, h))):
                raise ValueError
        except ValueError:
            raise answers.refused(row, f"the line {line[:60]!r} is not a box", "class, x, y, width, height") from None
        boxes.append([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height])
        classes.append(_right_class(row, parts[0], named, answers))
    return Boxes(boxes, classes)
