"""The plot of quality against latency: positions, and numbers that can be read."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.repository.report.figures import CROWD
from tritonkit.repository.report.scatter import Box, Dot, GateLine, Scatter, scatter

POINTS = (
    Dot("fast", 1.0, 0.90, "front"),
    Dot("middle", 2.0, 0.95, "front"),
    Dot("best", 4.0, 0.99, "front"),
    Dot("beaten", 4.0, 0.94, "passed"),
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
        for pair in ((fast.x, fast.y), (middle.x, fast.y), (middle.x, middle.y), (best.x, middle.y), (best.x, best.y))
    ]


def test_points_are_numbered_from_the_fastest_on() -> None:
    """The list next to the plot names them in that order, whatever order they came in."""
    plot = scatter(POINTS[::-1], (), 800)
    assert [mark.label.text for mark in plot.marks] == ["1", "2", "3", "4"]
    assert [mark.point.ms for mark in plot.marks] == [1.0, 2.0, 4.0, 4.0]


def test_a_variant_that_lost_everything_does_not_flatten_the_others() -> None:
    """It stands at the lower edge with an arrow, and the rest keep the height they had."""
    lost = Dot("lost", 1.5, 0.1, "refused")
    alone, with_it = scatter(POINTS, (), 800), scatter((*POINTS, lost), (), 800)
    marks = {mark.point.name: mark for mark in with_it.marks}
    assert marks["lost"].below
    assert not marks["fast"].below
    assert marks["lost"].y > marks["fast"].y
    assert marks["lost"].label.text == "2↓"
    before = {mark.point.name: mark.y for mark in alone.marks}
    height = before["fast"] - before["best"]
    assert marks["fast"].y - marks["best"].y == pytest.approx(height)


def test_limits_are_lines_or_said_to_lie_outside() -> None:
    """A gate close by is drawn; one far below would leave no room for the variants."""
    near, far = GateLine(0.88, "gate 0.88"), GateLine(0.2, "gate 0.2")
    plot = scatter(POINTS, (near, far), 800)
    assert [label.text for _, label in plot.limits] == ["gate 0.88"]
    assert plot.hidden == (far,)
    (at, _), lowest = plot.limits[0], max(mark.y for mark in plot.marks)
    assert lowest < at < plot.area.bottom


def is_readable(plot: Scatter) -> None:
    """No two texts share an area, none covers a mark, and none leaves the plot."""
    labels = [label for _, label in plot.limits] + [mark.label for mark in plot.marks]
    dots = [Box(m.x - 5, m.y - 5, m.x + 5, m.y + 5) for m in plot.marks]
    assert not any(one.overlaps(other) for one, other in combinations(labels, 2))
    assert not any(label.overlaps(dot) for label in labels for dot in dots)
    assert all(plot.area.contains(label) for label in labels)


@pytest.mark.parametrize("width", [820.0, 360.0])
def test_the_numbers_of_a_crowd_do_not_overlap(width: float) -> None:
    """Eighteen variants, ten of them equally good; on a phone too."""
    points = [Dot(name, ms, value, "passed") for name, _, value, ms, _ in CROWD]
    is_readable(scatter(points, (GateLine(0.9761, "gate 0.9761"),), width))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0.9, 1)), min_size=1, max_size=12))
def test_numbers_never_overlap_where_there_is_room(places: list[tuple[float, float]]) -> None:
    """Texts stay apart for any position of the points, even all in one place."""
    is_readable(scatter([Dot(f"v{n}", *at, "passed") for n, at in enumerate(places)], (), 820))
