"""Rectangles around points, and polygons: the geometry of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

ROUNDNESS = 0.25
"""Largest distance of a widened corner from the round one, in pixels."""


def hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull of int points [n, 2], in one direction; fewer than three where it has no area."""
    ordered = [tuple(point) for point in np.unique(points, axis=0).tolist()]
    chain = [*_half(ordered), *_half(ordered[::-1])]
    return np.array(chain, dtype=np.float64).reshape(-1, 2)


def _half(points: Iterable[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """One side of a hull, without its last point."""
    kept: list[tuple[float, ...]] = []
    for x, y in points:
        while len(kept) > 1:
            (x1, y1), (x2, y2) = kept[-2:]
            if (x2 - x1) * (y - y1) > (y2 - y1) * (x - x1):
                break
            kept.pop()
        kept.append((x, y))
    return kept[:-1]


def smallest_rectangle(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The rectangle of the smallest area around points, and its shorter side.

    Sides are computed in FP32 in OpenCV's order, because a corner is cut off to whole pixels afterwards: 9.99999 and 10
    are different boxes.

    Returns:
        Its corners float32 [4, 2] from the upper left on, clockwise in an image; all 0 where the points lie on a line.
    """
    corners = hull(points)
    if len(corners) < 3:
        return np.zeros((4, 2), np.float32), 0.0
    # Of each direction of a side: the first and the last corner along it and across it.
    directions = _directions(corners)
    across = np.stack([-directions[:, 1], directions[:, 0]], axis=1)
    ends = []
    for axis in (directions, across):
        places = axis.astype(np.float64) @ corners.T
        ends.append((places.argmin(axis=1), places.argmax(axis=1)))
    corners = corners.astype(np.float32)
    spans = [corners[last] - corners[first] for first, last in ends]
    pairs = zip(spans, (directions, across), strict=True)
    sides = [span[:, 0] * axis[:, 0] + span[:, 1] * axis[:, 1] for span, axis in pairs]
    areas = sides[0] * sides[1]
    best = len(areas) - 1 - int(np.argmin(areas[::-1]))
    left, low = (corners[first[best]] for first, _ in ends)
    (a, b), width, height = directions[best], sides[0][best], sides[1][best]
    along, over = a * left[0] + left[1] * b, -b * low[0] + low[1] * a
    scale = np.float32(1) / (a * a + b * b)
    start = np.array([(along * a - over * b) * scale, (a * over + b * along) * scale])
    center = start + (np.array([a * width, b * width]) + np.array([-b * height, a * height])) * np.float32(0.5)
    return from_upper_left(_around(center, (a, b), width, height)), float(min(width, height))


def _directions(corners: np.ndarray) -> np.ndarray:
    """Directions of the sides of a polygon, each turned by 90 degrees until it goes right and down: float32 [n, 2]."""
    edges = np.roll(corners, -1, axis=0) - corners
    x, y = (edges.astype(np.float32) * (1 / np.hypot(*edges.T)).astype(np.float32)[:, None]).T
    for _ in range(3):
        turn = ~((x > 0) & (y >= 0))
        x, y = np.where(turn, -y, x), np.where(turn, x, y)
    return np.stack([x, y + np.float32(0)], axis=1)


def _around(center: np.ndarray, direction: tuple[float, float], width: float, height: float) -> np.ndarray:
    """The corners of a rectangle float32 [4, 2]: OpenCV's way over its angle in degrees."""
    a, b = direction
    half = np.float32(0.5)
    sides = [np.float32(math.hypot(a * length, b * length)) for length in (width, height)]
    angle = math.radians(np.float32(math.degrees(math.atan2(b * width, a * width))))
    cosine, sine = (np.float32(function(angle)) * half for function in (math.cos, math.sin))
    x, y = center
    first = np.array([x - sine * sides[1] - cosine * sides[0], y + cosine * sides[1] - sine * sides[0]])
    second = np.array([x + sine * sides[1] - cosine * sides[0], y - cosine * sides[1] - sine * sides[0]])
    return np.stack([first, second, 2 * center - first, 2 * center - second]).astype(np.float32)


def from_upper_left(corners: np.ndarray) -> np.ndarray:
    """The two corners on the left, then those on the right, as upper left, upper right, lower right and lower left."""
    corners = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (pair[np.argsort(pair[:, 1], kind="stable")] for pair in (corners[:2], corners[2:]))
    return np.stack([left[0], right[0], right[1], left[1]])


def outline(corners: np.ndarray) -> tuple[float, float]:
    """Area and circumference of a polygon [n, 2]."""
    x, y = corners.astype(np.float64).T
    area = abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
    return area, float(np.hypot(x - np.roll(x, -1), y - np.roll(y, -1)).sum())


def widened(corners: np.ndarray, distance: float) -> np.ndarray:
    """Points int [n, 2] around a convex polygon at a distance, with round corners.

    The polygon's own corners are cut off to whole pixels, and the points are rounded, as Clipper's offsetting has them.

    Args:
        corners: [n, 2], clockwise in an image.
        distance: above 0, in pixels.
    """
    corners = np.trunc(corners)
    corners = corners[(corners != np.roll(corners, 1, axis=0)).any(axis=1)]
    if len(corners) < 3:
        return np.zeros((0, 2), np.int64)
    edges = np.roll(corners, -1, axis=0) - corners
    normals = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.hypot(*edges.T)[:, None]
    tolerance = min(ROUNDNESS, distance * ROUNDNESS)
    steps_around = min(math.pi / math.acos(1 - tolerance / distance), distance * math.pi)
    found = []
    for corner, before, after in zip(corners, np.roll(normals, 1, axis=0), normals, strict=True):
        turn = math.atan2(before[0] * after[1] - after[0] * before[1], before @ after)
        count = max(int(steps_around / (2 * math.pi) * abs(turn) + 0.5), 1)
        angles = np.arange(count) * (2 * math.pi / steps_around)
        cosines, sines = np.cos(angles), np.sin(angles)
        fan = np.stack([before[0] * cosines - before[1] * sines, before[0] * sines + before[1] * cosines], axis=1)
        found += [corner + distance * fan, corner + distance * after[None]]
    points = np.concatenate(found)
    return np.trunc(points + np.copysign(0.5, points)).astype(np.int64)


def mean_inside(values: np.ndarray, corners: np.ndarray) -> float:
    """The mean of values [height, width] at the pixels of a convex polygon, whose outline belongs to it.

    Args:
        corners: [n, 2], clockwise in an image; cut off to whole pixels.
    """
    height, width = values.shape
    low = np.clip(np.floor(corners.min(axis=0)).astype(int), 0, [width - 1, height - 1])
    high = np.clip(np.ceil(corners.max(axis=0)).astype(int), 0, [width - 1, height - 1])
    region = values[low[1] : high[1] + 1, low[0] : high[0] + 1]
    corners = np.trunc(corners - low) + low
    y, x = np.mgrid[low[1] : high[1] + 1, low[0] : high[0] + 1]
    inside = np.ones(region.shape, dtype=bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # Half a pixel outside, along the axis in which a line through pixels goes in steps.
        slack = max(abs(x2 - x1), abs(y2 - y1)) / 2
        inside &= (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) >= -slack
    return float(region[inside].mean()) if inside.any() else 0.0
