"""db_boxes without Triton: maps of probabilities to boxes of text, and maps that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from db_boxes_core import Settings, db_boxes, reading_order
from db_boxes_geometry import hull, mean_inside, outline, smallest_rectangle, widened
from db_boxes_regions import outlines

from tests.python_backends.adapters import Request, adapter


def page(*texts: tuple[int, int, int, int], height: int = 64, width: int = 128, value: float = 0.9) -> np.ndarray:
    """A map [1, height, width] with upright texts: left, top, right, bottom of their pixels."""
    values = np.zeros((1, height, width), np.float32)
    for left, top, right, bottom in texts:
        values[0, top:bottom, left:right] = value
    return values


def found(*pages: np.ndarray, sizes: Any = None, **settings: Any) -> dict[str, np.ndarray]:
    """The outputs for maps of one size."""
    chosen = Settings(**{"unclip_ratio": 1.5, **settings})
    return db_boxes(np.stack(pages), None if sizes is None else np.asarray(sizes), chosen)


def test_an_upright_text_is_widened_on_all_sides() -> None:
    """The distance is area times ratio by circumference: of pixels' centers 60 x 9, so 540 * 1.5 / 138 = 5.87."""
    outputs = found(page((20, 20, 81, 30)))
    assert outputs["count"].tolist() == [[1]]
    np.testing.assert_array_equal(outputs["quad"][0, 0], [[14, 14], [86, 14], [86, 35], [14, 35]])
    np.testing.assert_allclose(outputs["score"], 0.9, rtol=1e-6)


def test_boxes_are_in_pixels_of_the_source() -> None:
    """The map shows the whole source, in other proportions too, and boxes end at its last pixel."""
    outputs = found(page((20, 20, 81, 30)), sizes=[[128, 640]])
    np.testing.assert_array_equal(outputs["quad"][0, 0], [[70, 28], [430, 28], [430, 70], [70, 70]])
    outputs = found(page((0, 0, 128, 64)), sizes=[[100, 100]])
    np.testing.assert_array_equal(outputs["quad"][0, 0], [[0, 0], [99, 0], [99, 99], [0, 99]])


def slanted(angle: float, size: int = 200) -> np.ndarray:
    """A map with a text of 100 x 20 pixels in the middle, turned clockwise."""
    y, x = np.mgrid[:size, :size] - size / 2
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return ((abs(along) <= 50) & (abs(across) <= 10)).astype(np.float32)[None]


@pytest.mark.parametrize("angle", [-0.7, -0.2, 0.03, 0.4, 0.78])
def test_a_slanted_text_has_a_slanted_box(angle: float) -> None:
    """Corners go from the upper left on, clockwise, and the widened sides have the text's direction."""
    outputs = found(slanted(angle))
    assert outputs["count"].tolist() == [[1]]
    quad = outputs["quad"][0, 0]
    distance = 100 * 20 * 1.5 / 240
    expected = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [50 + distance, 10 + distance]
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    np.testing.assert_allclose(quad, expected @ turn + 100, atol=2.5)
    edges = np.roll(quad, -1, axis=0) - quad
    after = np.roll(edges, -1, axis=0)
    assert (edges[:, 0] * after[:, 1] > edges[:, 1] * after[:, 0]).all()


def test_unsure_small_and_thin_regions_are_no_texts() -> None:
    """A mean below the threshold, or fewer than four pixels of height: the smallest side counts centers."""
    pages = [page((20, 20, 80, 30), value=0.55), page((20, 20, 80, 23)), page((20, 20, 21, 21)), page()]
    assert found(*pages)["count"].tolist() == [[0]] * 4
    assert found(page((20, 20, 80, 30), value=0.55), box_threshold=0.5)["count"].tolist() == [[1]]
    assert found(page((20, 20, 80, 24)))["count"].tolist() == [[1]]
    assert found(page((20, 20, 80, 30)), sizes=[[3, 3]])["count"].tolist() == [[0]], "too small in the source"


def test_regions_touch_at_corners_and_dilation_joins_more() -> None:
    """A corner is enough; a gap of a pixel is closed by dilation, one of two is not."""
    corner = page((10, 10, 40, 20), (40, 20, 70, 30))
    one, two = (page((10, 10, 40, 20), (40 + gap, 10, 70, 20)) for gap in (1, 2))
    assert found(corner, one, two, box_threshold=0.3)["count"].ravel().tolist() == [1, 2, 2]
    assert found(corner, one, two, box_threshold=0.3, dilate=True)["count"].ravel().tolist() == [1, 1, 2]


def test_outputs_are_as_long_as_the_longest_page() -> None:
    """Zeros follow the last text; without any there is one row of them."""
    outputs = found(page((10, 10, 60, 20), (10, 40, 60, 50)), page(), page((10, 10, 60, 20)))
    assert outputs["count"].tolist() == [[2], [0], [1]]
    assert outputs["quad"].shape == (3, 2, 4, 2)
    assert outputs["score"].shape == (3, 2)
    assert not outputs["quad"][1].any()
    assert not outputs["quad"][2, 1].any()
    assert found(page())["quad"].shape == (1, 1, 4, 2)
    assert outputs["quad"].dtype == outputs["score"].dtype == np.float32


def test_of_too_many_regions_the_largest_are_read() -> None:
    """The limit bounds the work that a page of noise makes."""
    outputs = found(page((10, 10, 40, 20), (10, 40, 100, 50), (60, 10, 100, 20)), k=2)
    assert outputs["count"].tolist() == [[2]]
    assert (outputs["quad"][0, :, 1, 0] > 90).all()


def test_texts_are_read_line_by_line() -> None:
    """Upper left corners that differ little in height are one line, from left to right."""
    corners = np.array([[300, 105], [10, 200], [10, 108], [150, 100], [5, 10]])
    assert reading_order(corners, 10) == [4, 2, 3, 0, 1]
    assert reading_order(corners, 1) == [4, 3, 0, 2, 1]
    assert reading_order(np.zeros((0, 2)), 10) == []


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "nan"), (1.5, "found values from 0 to 1.5"), (-0.5, "from -0.5"), (np.inf, "inf")]
)
def test_values_that_are_no_probabilities_are_refused(value: float, message: str) -> None:
    """The item is named: an activation may be missing."""
    bad = page()
    bad[0, 3, 4] = value
    with pytest.raises(ValueError, match=f"input 'probability', item 1: .*{message}"):
        found(page(), bad)


def test_sizes_that_are_none() -> None:
    """A picture without pixels, as of a warm-up, has no texts; a size below 0 and an empty map are refused."""
    assert found(page((10, 10, 60, 20)), sizes=[[0, 5]])["count"].tolist() == [[0]]
    with pytest.raises(ValueError, match="item 0: image_size is -1 x 5"):
        found(page(), sizes=[[-1, 5]])
    with pytest.raises(ValueError, match="item 0: the map is 0 x 5"):
        found(np.zeros((1, 0, 5), np.float32))


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 1.0}, {"box_threshold": -0.1}, {"unclip_ratio": 0.0}, {"unclip_ratio": np.inf}, {"k": 0}],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """The message names the parameter."""
    with pytest.raises(ValueError, match=f"parameter {next(iter(wrong))}: found"):
        Settings(**wrong)


def flooded(bitmap: np.ndarray, corners: bool) -> list[set[tuple[int, int]]]:
    """The regions as sets of x and y, pixel by pixel."""
    left = {(int(x), int(y)) for y, x in np.argwhere(bitmap)}
    steps = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx or dy) and (corners or not (dx and dy))]
    regions = []
    while left:
        region, edge = set(), [left.pop()]
        while edge:
            x, y = edge.pop()
            region.add((x, y))
            edge += [near for dx, dy in steps if (near := (x + dx, y + dy)) in left]
            left -= set(edge)
        regions.append(region)
    return regions


def hulls(regions: Any) -> list[list[tuple[float, ...]]]:
    """The corners of each region's hull, in one order."""
    return sorted(sorted(map(tuple, hull(np.array([*map(tuple, region)])).tolist())) for region in regions)


@pytest.mark.parametrize(
    ("corner", "sides", "off"),
    [
        ((765, 573), (163, 16), [[0, 0], [0, 0], [0, 0], [0, 0]]),
        ((232, 587), (166, 16), [[0, 1], [0, 1], [0, 1], [0, 1]]),
        ((638, 739), (244, 20), [[1, 1], [1, 1], [1, 1], [1, 1]]),
        ((325, 427), (164, 12), [[1, 0], [1, 0], [1, 0], [1, 0]]),
        ((226, 860), (282, 30), [[0, 0], [1, 0], [1, 0], [0, 0]]),
    ],
)
def test_corners_are_those_of_opencv_to_the_last_bit(
    corner: tuple[int, int], sides: tuple[int, int], off: list[list[int]]
) -> None:
    """OpenCV's sides in FP32 are a little too short for some lengths, and a corner that is cut off loses a pixel."""
    points = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * sides + corner
    corners, _ = smallest_rectangle(points)
    np.testing.assert_allclose(corners, points, atol=2e-4)
    np.testing.assert_array_equal(np.trunc(corners), points - off)


@pytest.mark.parametrize("density", [0.05, 0.3, 0.45, 0.6, 0.9])
def test_outlines_are_those_of_regions_and_holes(density: float, random: np.random.Generator) -> None:
    """Hulls are those of regions and of the pixels around holes that were found pixel by pixel."""
    for size in ((1, 1), (1, 9), (9, 1), (12, 17), (30, 23)):
        bitmap = random.random(size) < density
        regions = flooded(bitmap, corners=True)
        around = []
        for hole in flooded(~np.pad(bitmap, 1), corners=False):
            if (0, 0) not in hole:
                near = {(x + dx, y + dy) for x, y in hole for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0))} - hole
                around.append({(x - 1, y - 1) for x, y in near})
        assert hulls(outlines(bitmap, 10_000)) == hulls([*regions, *around])


def test_the_smallest_rectangle_of_points_on_a_line_has_no_sides() -> None:
    """Nothing is divided by zero."""
    for points in ([[3, 4]], [[3, 4], [9, 4]], [[0, 0], [2, 2], [5, 5]]):
        corners, shorter = smallest_rectangle(np.array(points))
        assert shorter == 0
        assert not corners.any()


def test_the_smallest_rectangle_is_no_larger_than_any_other(random: np.random.Generator) -> None:
    """A search over angles finds none that is smaller, and all points lie in it."""
    points = random.integers(0, 100, (30, 2))
    corners, shorter = smallest_rectangle(points)
    area, _ = outline(corners)
    for angle in np.linspace(0, np.pi / 2, 2000):
        along = points @ [np.cos(angle), np.sin(angle)]
        across = points @ [-np.sin(angle), np.cos(angle)]
        assert np.ptp(along) * np.ptp(across) >= area - 1e-2
    edges = np.roll(corners, -1, axis=0) - corners
    lengths = np.hypot(*edges.T)
    np.testing.assert_allclose(shorter, lengths.min(), rtol=1e-4)
    for corner, edge, length in zip(corners, edges, lengths, strict=True):
        distance = (edge[0] * (points[:, 1] - corner[1]) - edge[1] * (points[:, 0] - corner[0])) / length
        assert distance.min() > -1e-3


def test_widened_corners_are_round() -> None:
    """All points lie at the distance, but for rounding, and reach it on each side."""
    square = np.array([[10, 10], [50, 10], [50, 30], [10, 30]], np.float32)
    points = widened(square, 8.0)
    away = np.hypot(*np.maximum(0, np.maximum([10, 10] - points, points - [50, 30])).T)
    assert (abs(away - 8) < 0.8).all()
    assert (points.min(axis=0).tolist(), points.max(axis=0).tolist()) == ([2, 2], [58, 38])
    assert not len(widened(np.zeros((4, 2)), 3.0))


def test_the_mean_inside_counts_the_outline() -> None:
    """Pixels on the sides belong to a polygon; what lies outside of the map does not count."""
    values = np.zeros((20, 20), np.float32)
    values[5:11, 5:16] = 1
    assert mean_inside(values, np.array([[5, 5], [15, 5], [15, 10], [5, 10]])) == 1
    assert mean_inside(values, np.array([[4, 5], [15, 5], [15, 10], [4, 10]])) == pytest.approx(11 / 12)
    assert mean_inside(values, np.array([[-3, -3], [30, -3], [30, 30], [-3, 30]])) == pytest.approx(66 / 400)


def test_the_adapter_reads_the_size_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes are in pixels of the map without it, and a bad map is one request's error."""
    values = page((20, 20, 81, 30))[None]
    model = adapter("db_boxes", monkeypatch)
    asked = Request(probability=values, image_size=np.array([[128, 640]]))
    [quads, error] = model.execute([asked, Request(probability=values + 1, image_size=np.array([[1, 1]]))])
    assert quads[0, 0, 0].tolist() == [70, 28]
    assert error.kind == "invalid"
    [quads] = adapter("db_boxes", monkeypatch, image_size="false").execute([Request(probability=values)])
    assert quads[0, 0, 0].tolist() == [14, 14]
