"""Read a detector's raw output: scores, classes and boxes, the best of them in pixels of the source.

The families and their formulas are those of the published detectors: YOLO's heads as Ultralytics exports them, SSD with
decoded boxes, DETR and RT-DETR as post_process_object_detection of transformers reads them, and CenterFace as its own
`decode` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from decode_image_geometry import check_frame, place, want
from detect_centers import NOT_FINITE, POINTS, centers
from detect_nms import kept
from step_scores import sigmoid


@dataclass(frozen=True)
class Family:
    """The form of an output, and the values that `auto` stands for."""

    inputs: tuple[str, ...]
    box_format: str = "cxcywh"
    coordinates: str = "pixels"
    function: str = "none"
    background: str = "none"
    nms: bool = True
    points: int = 0
    """Landmarks of each box."""


FAMILIES = {
    "yolov5": Family(("predictions",)),
    "yolox": Family(("predictions",)),
    "yolov8": Family(("predictions",)),
    "end2end": Family(("predictions",), box_format="xyxy", nms=False),
    "ssd": Family(("boxes", "scores"), box_format="xyxy", coordinates="normalized", background="first"),
    "detr": Family(
        ("pred_boxes", "logits"), coordinates="normalized", function="softmax", background="last", nms=False
    ),
    "rtdetr": Family(("pred_boxes", "logits"), coordinates="normalized", function="sigmoid", nms=False),
    "centerface": Family(("heatmap", "scale", "offset", "landmarks"), box_format="xyxy", points=POINTS),
}
CHOICES = {
    "box_format": ("xyxy", "cxcywh", "yxyx"),
    "coordinates": ("pixels", "normalized"),
    "function": ("none", "sigmoid", "softmax"),
    "background": ("none", "first", "last"),
}


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    family: str = "yolov8"
    k: int = 100
    score_threshold: float = 0.25
    iou_threshold: float = 0.45
    class_aware: bool = True
    box_format: str = "auto"
    coordinates: str = "auto"
    function: str = "auto"
    background: str = "auto"
    image_size: bool = True
    height: int = 224
    width: int = 224
    resize: str = "stretch"
    resize_to: int = 256

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        check_frame(self)
        want(self.family in FAMILIES, "family", self.family, f"one of {', '.join(FAMILIES)}")
        want(self.k >= 1, "k", self.k, "at least 1")
        for name in ("score_threshold", "iou_threshold"):
            want(0 <= getattr(self, name) <= 1, name, getattr(self, name), "0 to 1")
        for name, values in CHOICES.items():
            value = getattr(self, name)
            want(value == "auto" or value in values, name, value, f"auto, {', '.join(values)}")

    def of(self, name: str) -> str:
        """A parameter, where `auto` is the family's."""
        value: str = getattr(self, name)
        return getattr(FAMILIES[self.family], name) if value == "auto" else value


class Candidates(NamedTuple):
    """Boxes above the score threshold, in no order."""

    boxes: np.ndarray
    """Boxes as the network gives them, float32 [n, 4]."""
    scores: np.ndarray
    """Their scores, float32 [n]."""
    classes: np.ndarray
    """The numbers of their classes, int [n]."""
    points: np.ndarray
    """Their landmarks, float32 [n, points, 2]: x and y, in the pixels of the boxes."""


def detect(
    tensors: Mapping[str, np.ndarray], sizes: np.ndarray | None, labels: np.ndarray, settings: Settings
) -> dict[str, np.ndarray]:
    """The best boxes of each image, best first, padded to k.

    Args:
        tensors: the family's inputs, float32 [batch, ...].
        sizes: int64 [batch, 2], height and width of each source; None for boxes in pixels of the network's image.
        labels: object [classes].
        settings: the step's.

    Returns:
        box: float32 [batch, k, 4], left, top, right, bottom within the image, 0 where there is none; score: float32
        [batch, k], 0; label: object [batch, k], empty; class_id: int32 [batch, k], -1; count: int32 [batch, 1]; of a
        family with landmarks points: float32 [batch, k, points, 2], 0.

    Raises:
        ValueError: shapes that do not fit, or values that are not finite; names input and item.
    """
    family = FAMILIES[settings.family]
    given = [tensors[name] for name in family.inputs]
    batch, k = len(given[0]), settings.k
    outputs = {
        "box": np.zeros((batch, k, 4), np.float32),
        "score": np.zeros((batch, k), np.float32),
        "label": np.full((batch, k), b"", dtype=object),
        "class_id": np.full((batch, k), -1, np.int32),
        "count": np.zeros((batch, 1), np.int32),
        "points": np.zeros((batch, k, family.points, 2), np.float32),
    }
    names = " and ".join(f"'{name}'" for name in family.inputs)
    for item in range(batch):
        try:
            with np.errstate(invalid="ignore"):  # of a score that _checked refuses
                candidates = _candidates([tensor[item] for tensor in given], len(labels), settings)
            boxes, scores, classes, points = _best(candidates, _size(sizes, item, settings), settings)
        except ValueError as error:
            raise ValueError(f"input {names}, item {item}: {error}") from error
        count = len(boxes)
        values = (boxes, scores, labels[classes], classes, count, points)
        for name, value in zip(outputs, values, strict=True):
            outputs[name][item, : count if name != "count" else 1] = value
    if not family.points:
        del outputs["points"]
    return outputs


def _size(sizes: np.ndarray | None, item: int, settings: Settings) -> tuple[int, int]:
    """Width and height of the image in whose pixels the boxes are."""
    if sizes is None:
        return settings.width, settings.height
    height, width = map(int, sizes[item])
    if min(height, width) < 0:
        raise ValueError(f"image_size is {height} x {width}, wanted none below 0")
    return width, height


def _candidates(given: list[np.ndarray], classes: int, settings: Settings) -> Candidates:
    """The boxes of an image whose score is above the threshold."""
    family = settings.family
    if family == "yolov8":
        _check_width(len(given[0]) - 4, classes, settings)
        return _above(given[0][:4].T, given[0][4:].T, None, settings)
    if family in ("yolov5", "yolox"):
        _check_width(given[0].shape[1] - 5, classes, settings)
        boxes = given[0][:, :4] if family == "yolov5" else _of_cells(given[0][:, :4], settings)
        return _above(boxes, given[0][:, 5:], given[0][:, 4], settings)
    if family == "end2end":
        return _final(given[0], classes, settings)
    if family == "centerface":
        _check_width(len(given[0]), classes, settings)
        image = (settings.height, settings.width)
        return Candidates(*centers(_checked(given[0]), *given[1:], image, settings.score_threshold))
    boxes, scores = given
    if len(boxes) != len(scores):
        raise ValueError(f"found {len(boxes)} boxes and the scores of {len(scores)}")
    _check_width(scores.shape[1] - (settings.of("background") != "none"), classes, settings)
    return _above(boxes, scores, None, settings)


def _of_cells(boxes: np.ndarray, settings: Settings) -> np.ndarray:
    """Center and size in pixels of boxes that are given relative to the cells of YOLOX's grids: float32 [n, 4]."""
    corners, sides = _grids(settings.width, settings.height, len(boxes))
    with np.errstate(over="ignore"):  # boxes above the threshold are checked
        return np.concatenate([boxes[:, :2] + corners, np.exp(boxes[:, 2:])], axis=1) * sides


@lru_cache(maxsize=2)
def _grids(image_width: int, image_height: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Column and row of each cell of YOLOX's grids, float32 [count, 2], and its side in pixels, float32 [count, 1].

    A grid has a cell for each 8, 16 and 32 pixels, and one for each 64 in YOLOX's larger form.

    Raises:
        ValueError: the grids of such an image have another number of cells.
    """
    cells: list[tuple[int, int, int]] = []  # width and height of each grid, and the pixels of its cells
    for stride in (8, 16, 32, 64):
        cells.append((image_width // stride, image_height // stride, stride))
        if sum(width * height for width, height, _ in cells) == count and stride >= 32:
            break
    else:
        small, large = (sum(width * height for width, height, _ in cells[:grids]) for grids in (3, 4))
        raise ValueError(
            f"found {count} boxes, wanted {small} or {large}, one for each cell of an image of"
            f" {image_height} x {image_width} (parameters height and width)"
        )
    corners = [
        np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2) for width, height, _ in cells
    ]
    sides = np.repeat(np.float32([stride for *_, stride in cells]), [len(grid) for grid in corners])
    return np.concatenate(corners).astype(np.float32), sides[:, None]


def _check_width(number: int, classes: int, settings: Settings) -> None:
    if number != classes:
        raise ValueError(
            f"found the scores of {number} classes, wanted {classes}, one per label; is it of family {settings.family},"
            f" with background {settings.of('background')}?"
        )


def _above(boxes: np.ndarray, scores: np.ndarray, objectness: np.ndarray | None, settings: Settings) -> Candidates:
    """Boxes above the threshold by the score of their best class; in family rtdetr by each class's."""
    if objectness is not None:
        sure = _checked(objectness if settings.of("function") == "none" else sigmoid(objectness))
        likely = np.flatnonzero(sure > settings.score_threshold)  # a product with a probability is no larger
        boxes, scores = boxes[likely], _applied(scores[likely], settings) * sure[likely][:, None]
    else:
        scores = _applied(scores, settings)
    if not scores.size:
        return _without_points(boxes[:0], np.zeros(0, np.float32), np.zeros(0, np.intp))
    if settings.family == "rtdetr":
        rows, columns = np.nonzero(_checked(scores) > settings.score_threshold)
        return _without_points(boxes[rows], scores[rows, columns], columns)
    best = _checked(scores.max(axis=1))
    rows = np.flatnonzero(best > settings.score_threshold)
    return _without_points(boxes[rows], best[rows], scores[rows].argmax(axis=1))


def _without_points(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> Candidates:
    return Candidates(boxes, scores, classes, np.zeros((len(boxes), 0, 2), np.float32))


def _applied(scores: np.ndarray, settings: Settings) -> np.ndarray:
    """Scores after the function, without the background."""
    function, background = settings.of("function"), settings.of("background")
    if function == "softmax":
        powers = np.exp(scores - _checked(scores.max(axis=1, keepdims=True, initial=-np.inf)))
        scores = powers / powers.sum(axis=1, keepdims=True)
    elif function == "sigmoid":
        scores = sigmoid(scores)
    return scores[:, {"none": slice(None), "first": slice(1, None), "last": slice(-1)}[background]]


def _checked(scores: np.ndarray) -> np.ndarray:
    highest = scores.max(initial=-np.inf)  # NaN wherever there is one
    if np.isnan(highest) or highest == np.inf:
        raise ValueError(f"the largest score is {highest}, wanted a finite number")
    return scores


def _final(rows: np.ndarray, classes: int, settings: Settings) -> Candidates:
    """Rows of box, score and class, which a network chose itself."""
    rows = rows[_checked(rows[:, 4]) > settings.score_threshold]
    numbers = rows[:, 5]
    fits = (numbers >= 0) & (numbers < classes)
    if not fits.all():
        raise ValueError(f"found the class {numbers[~fits][0]}, wanted 0 to {classes - 1}, one per label")
    return _without_points(rows[:, :4], rows[:, 4], numbers.astype(np.intp))


def _best(candidates: Candidates, size: tuple[int, int], settings: Settings) -> Candidates:
    """At most k boxes in pixels of the image, best first, ties by lower index; boxes of which it shows nothing are
    left out."""
    if 0 in size:  # such as that of a warm-up request: it shows nothing
        candidates = Candidates(*(array[:0] for array in candidates))
    order = np.argsort(-candidates.scores, kind="stable")
    with np.errstate(over="ignore"):  # coordinates that far away are cut off
        corners = _corners(candidates.boxes[order], settings)
        pixels = np.clip(_in_source(corners, size, settings), 0, np.float32(size * 2))
    shown = np.flatnonzero((pixels[:, 2:] > pixels[:, :2]).all(axis=1))
    order, corners, pixels = order[shown], corners[shown], pixels[shown]
    classes = candidates.classes[order]
    chosen = slice(settings.k)
    if FAMILIES[settings.family].nms:
        chosen = kept(corners, classes if settings.class_aware else None, settings.iou_threshold, settings.k)
    with np.errstate(over="ignore"):
        points = _in_source(candidates.points[order][chosen], size, settings)
    if not np.isfinite(points).all():
        raise ValueError("a box above the score threshold has a point that is not finite")
    return Candidates(pixels[chosen], candidates.scores[order][chosen], classes[chosen], points)


def _corners(boxes: np.ndarray, settings: Settings) -> np.ndarray:
    """The corners left, top, right, bottom of boxes in pixels of the network's image: float32 [n, 4]."""
    if not np.isfinite(boxes).all():
        raise ValueError(NOT_FINITE)
    kind = settings.of("box_format")
    if kind == "yxyx":
        boxes = boxes[:, [1, 0, 3, 2]]
    elif kind == "cxcywh":
        half = boxes[:, 2:] / 2
        boxes = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    if settings.of("coordinates") == "normalized":
        boxes = boxes * np.float32([settings.width, settings.height] * 2)
    return np.asarray(boxes, dtype=np.float32)


def _in_source(places: np.ndarray, size: tuple[int, int], settings: Settings) -> np.ndarray:
    """Corners or points in pixels of the network's image, in those of the source: float32 [n, ..., 2 or 4]."""
    if settings.image_size and len(places):
        placed = place(size, settings)
        pairs = places.shape[-1] // 2
        places = (places - np.float32(placed.at * pairs)) * np.float32(placed.scale * pairs)
        places = places + np.float32(placed.box[:2] * pairs)
    return places
