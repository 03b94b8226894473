"""Boxes of text from the probabilities of a DB network (differentiable binarization), as PaddleOCR reads them.

Pixels above a threshold make regions; each gets the smallest rectangle around it, whose mean probability is its score.
The network is trained on shrunk texts, so a rectangle is widened, and the smallest one around that is the text's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from db_boxes_geometry import from_upper_left, mean_inside, outline, smallest_rectangle, widened
from db_boxes_regions import outlines

SMALLEST = 3
"""Shorter sides of regions, in pixels of the map; of texts in pixels of the source it is one more."""


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    threshold: float = 0.3
    box_threshold: float = 0.6
    unclip_ratio: float = 1.5
    dilate: bool = False
    k: int = 1000
    same_line: int = 10
    image_size: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        for name in ("threshold", "box_threshold"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"parameter {name}: found {value}, wanted 0 to less than 1")
        if not 0 < self.unclip_ratio < math.inf:
            raise ValueError(f"parameter unclip_ratio: found {self.unclip_ratio}, wanted a number above 0")
        for name in ("k", "same_line"):
            if getattr(self, name) < 1:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted at least 1")


def db_boxes(probabilities: np.ndarray, sizes: np.ndarray | None, settings: Settings) -> dict[str, np.ndarray]:
    """The texts of each page, in the order of reading.

    Args:
        probabilities: float32 [batch, 1, height, width].
        sizes: int64 [batch, 2], height and width of each source; None for boxes in pixels of the map.
        settings: the step's.

    Returns:
        quad: float32 [batch, n, 4, 2], corners from the upper left on, clockwise; score: float32 [batch, n]; count:
        int32 [batch, 1]. n is the largest number of a page's texts, and at least 1; zeros follow the last.

    Raises:
        ValueError: no pixels, a value that is not a probability, or a size below 0; names the item.
    """
    pages = []
    for item, (page,) in enumerate(probabilities):
        try:
            size = page.shape[::-1] if sizes is None else _size(sizes[item])
            pages.append(_texts(_checked(page), size, settings))
        except ValueError as error:
            raise ValueError(f"input 'probability', item {item}: {error}") from error
    most = max([1, *(len(scores) for _, scores in pages)])
    outputs = {
        "quad": np.zeros((len(pages), most, 4, 2), np.float32),
        "score": np.zeros((len(pages), most), np.float32),
        "count": np.array([[len(scores)] for _, scores in pages], dtype=np.int32).reshape(-1, 1),
    }
    for item, (quads, scores) in enumerate(pages):
        outputs["quad"][item, : len(quads)] = quads
        outputs["score"][item, : len(scores)] = scores
    return outputs


def _size(size: np.ndarray) -> tuple[int, int]:
    """Width and height of the source."""
    height, width = map(int, size)
    if min(height, width) < 0:
        raise ValueError(f"image_size is {height} x {width}, wanted none below 0")
    return width, height


def _checked(page: np.ndarray) -> np.ndarray:
    if not page.size:
        raise ValueError(f"the map is {page.shape[0]} x {page.shape[1]}, wanted at least 1 x 1")
    low, high = float(page.min()), float(page.max())
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # not so with NaN either
        raise ValueError(f"found values from {low:g} to {high:g}, wanted probabilities, 0 to 1")
    return page


def _texts(page: np.ndarray, size: tuple[int, int], settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Quadrilaterals float32 [n, 4, 2] in pixels of the source, and their scores float32 [n]."""
    if 0 in size:  # such as that of a warm-up request: it shows nothing
        return np.zeros((0, 4, 2), np.float32), np.zeros(0, np.float32)
    bitmap = page > settings.threshold
    if settings.dilate:
        bitmap[1:] |= bitmap[:-1].copy()
        bitmap[:, 1:] |= bitmap[:, :-1].copy()
    found = [_text(page, points, size, settings) for points in outlines(bitmap, settings.k)]
    texts = [text for text in found if text is not None]
    order = reading_order(np.array([quad[0] for quad, _ in texts]).reshape(-1, 2), settings.same_line)
    quads = np.array([texts[number][0] for number in order], dtype=np.float32).reshape(-1, 4, 2)
    return quads, np.array([texts[number][1] for number in order], dtype=np.float32)


def _text(
    page: np.ndarray, points: np.ndarray, size: tuple[int, int], settings: Settings
) -> tuple[np.ndarray, float] | None:
    """The quadrilateral of a region's outline and its score; None for one that is not text."""
    corners, shorter = smallest_rectangle(points)
    if shorter < SMALLEST:
        return None
    score = mean_inside(page, corners)
    if score < settings.box_threshold:
        return None
    area, around = outline(corners)
    corners, shorter = smallest_rectangle(widened(corners, area * settings.unclip_ratio / around))
    if shorter < SMALLEST + 2:
        return None
    quad = np.round(corners / np.float32(page.shape[::-1]) * np.float32(size))
    quad = from_upper_left(np.clip(quad, 0, np.float32(size) - 1))
    sides = np.hypot(*(quad[[1, 3]] - quad[0]).T)
    return (quad, score) if (sides >= SMALLEST + 1).all() else None


def reading_order(corners: np.ndarray, same_line: float) -> list[int]:
    """The order of texts by their upper left corners [n, 2]: lines from top to bottom, each from left to right."""
    order = np.lexsort(corners.T).tolist()
    places = corners.tolist()  # Python's own numbers are compared many times faster
    for last in range(1, len(order)):
        for place in range(last, 0, -1):
            (x1, y1), (x2, y2) = places[order[place - 1]], places[order[place]]
            if not (abs(y2 - y1) < same_line and x2 < x1):
                break
            order[place - 1 : place + 1] = order[place], order[place - 1]
    return order
