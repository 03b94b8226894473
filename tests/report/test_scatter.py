"""The plot of quality against latency: what lies where, and names that can be read."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.figures import CROWD
from tritonkit.report.labels import Box, place_labels
from tritonkit.report.scatter import Bar, Point, scatter

POINTS = (
    Point("fast", 1.0, 0.90, "front"),
    Point("middle", 2.0, 0.95, "front"),
    Point("best", 4.0, 0.99, "front"),
    Point("beaten", 4.0, 0.94, "passed"),
)


def test_faster_is_left_and_better_is_up() -> None:
    """Pixels run downwards, so the best variant has the smallest y."""
    marks = {mark.point.name: mark for mark in scatter(POINTS, (), 800).marks}
    assert marks["fast"].x < marks["middle"].x < marks["best"].x
    assert marks["best"].y < marks["middle"].y < marks["beaten"].y < marks["fast"].y


def test_the_front_goes_along_before_it_goes_up() -> None:
    """Between two variants nothing better is known than the faster one's quality."""
    plot = scatter(POINTS, (), 800)
    marks = {mark.point.name: mark for mark in plot.marks}
    corners = [tuple(map(float, pair.split(","))) for pair in plot.front.split()]
    fast, middle, best = (marks[name] for name in ("fast", "middle", "best"))
    assert corners == [
        pytest.approx(pair, abs=0.1)
        for pair in (
            (fast.x, fast.y), (middle.x, fast.y), (middle.x, middle.y), (best.x, middle.y),
            (best.x, best.y),
        )
    ]  # fmt: skip


def test_a_variant_that_lost_everything_does_not_flatten_the_others() -> None:
    """It stands at the lower edge with its figure, and the rest keep the height they had."""
    lost = Point("lost", 1.5, 0.1, "refused")
    alone, with_it = scatter(POINTS, (), 800), scatter((*POINTS, lost), (), 800)
    marks = {mark.point.name: mark for mark in with_it.marks}
    assert marks["lost"].below
    assert not marks["fast"].below
    assert marks["lost"].y > marks["fast"].y
    assert "lost ↓ 0.1" in [label.text for label in with_it.labels]
    before = {mark.point.name: mark.y for mark in alone.marks}
    height = before["fast"] - before["best"]
    assert marks["fast"].y - marks["best"].y == pytest.approx(height)


def test_bars_are_lines_or_said_to_lie_outside() -> None:
    """A gate close by is drawn; one far below would leave no room for the variants."""
    near, far = Bar(0.88, "gate 0.88"), Bar(0.2, "gate 0.2")
    plot = scatter(POINTS, (near, far), 800)
    assert [label.text for _, label in plot.bars] == ["gate 0.88"]
    assert plot.hidden == (far,)
    (at, _), lowest = plot.bars[0], max(mark.y for mark in plot.marks)
    assert lowest < at < plot.room.bottom


def is_readable(boxes: list[Box], room: Box) -> None:
    """No two share an area, and none leaves the room."""
    for one, other in combinations(boxes, 2):
        assert not one.meets(other)
    for box in boxes:
        assert room.left <= box.left
        assert box.right <= room.right
        assert room.top <= box.top
        assert box.bottom <= room.bottom


@pytest.mark.parametrize("width", [820.0, 360.0])
def test_the_names_of_a_crowd_do_not_overlap(width: float) -> None:
    """Eighteen variants, ten of them equally good; on a phone too."""
    points = [Point(name, ms, value, "passed") for name, _, value, ms, _ in CROWD]
    plot = scatter(points, (Bar(0.9761, "gate 0.9761"),), width)
    assert len(plot.labels) == len(CROWD)
    is_readable(
        [label.box for label in plot.labels] + [label.box for _, label in plot.bars], plot.room
    )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(10, 690), st.floats(10, 390)), min_size=1, max_size=10))
def test_names_never_overlap_where_there_is_room(places: list[tuple[float, float]]) -> None:
    """However the points lie, also all in one place, a far name has a line that ends at its point."""
    room = Box(0, 0, 700, 400)
    named = [(f"variant-number-{place}", x, y) for place, (x, y) in enumerate(places)]
    labels = place_labels(named, room, 12)
    is_readable([label.box for label in labels], room)
    for label, (_, x, y) in zip(labels, named, strict=True):
        near = abs(label.box.nearest(x, y)[0] - x) + abs(label.box.nearest(x, y)[1] - y) < 20
        assert near or (label.leader is not None and label.leader[:2] == (x, y))
