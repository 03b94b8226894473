"""Read a detector that marks the centers of objects: CenterFace, with the points of each face.

The formulas are those of CenterFace's own `decode`. Each cell of the maps stands for 4 pixels of the network's image.
"""

from __future__ import annotations

import numpy as np

POINTS = 5  # eyes, nose, corners of the mouth
NOT_FINITE = "a box above the score threshold has a number that is not finite"
_CELL = 4


def centers(
    heatmap: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    landmarks: np.ndarray,
    image: tuple[int, int],
    threshold: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Boxes of the cells whose score is above the threshold.

    Args:
        heatmap: scores, float32 [classes, rows, columns].
        scale: logarithms of heights and widths in cells, float32 [2, rows, columns].
        offset: from the middle of a cell down and right, in cells, float32 [2, rows, columns].
        landmarks: y and x of each point, in shares of the box, float32 [2 * POINTS, rows, columns].
        image: height and width of the network's image.
        threshold: what a score has to exceed.

    Returns:
        Boxes, float32 [n, 4]: left, top, right, bottom in pixels of the network's image; scores, float32 [n]; classes,
        int [n]; points, float32 [n, POINTS, 2].

    Raises:
        ValueError: maps that do not fit the image or each other, or a box that is not finite.
    """
    height, width = image
    _check_shapes({"heatmap": heatmap, "scale": scale, "offset": offset, "landmarks": landmarks}, height, width)
    classes, rows, columns = np.nonzero(heatmap > threshold)
    with np.errstate(over="ignore", invalid="ignore"):  # points that are not finite are refused
        sides = np.exp(scale[:, rows, columns]) * np.float32(_CELL)
        middle = (np.float32([rows, columns]) + offset[:, rows, columns] + np.float32(0.5)) * np.float32(_CELL)
        if not np.isfinite([sides, middle]).all():  # clip would make them finite
            raise ValueError(NOT_FINITE)
        limits = np.float32([[height], [width]])
        start = np.clip(middle - sides / 2, 0, limits)  # a box is moved into the image, not cut off at its left
        end = np.minimum(start + sides, limits)
        shares = landmarks[:, rows, columns].reshape(POINTS, 2, -1)
        points = shares * sides + start
    boxes = np.concatenate([start[::-1], end[::-1]]).T
    return boxes, heatmap[classes, rows, columns], classes, points[:, ::-1].transpose(2, 0, 1)


def _check_shapes(maps: dict[str, np.ndarray], height: int, width: int) -> None:
    """ValueError for a map that does not fit the image."""
    channels = {"heatmap": len(maps["heatmap"]), "scale": 2, "offset": 2, "landmarks": 2 * POINTS}
    for name, found in maps.items():
        wanted = (channels[name], height // _CELL, width // _CELL)
        if found.shape != wanted:
            raise ValueError(
                f"found {name} of shape {list(found.shape)}, wanted {list(wanted)} for an image of"
                f" {height} x {width} (parameters height and width)"
            )
