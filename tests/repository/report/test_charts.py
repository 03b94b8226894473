"""Lines and columns: every point lies in the plot, names do not cover each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.repository.report.charts import Line, columns, lines

VALUES = st.lists(st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=30)


@given(st.lists(VALUES, min_size=1, max_size=6), st.booleans())
def test_all_points_lie_in_the_plot(values: list[list[float | None]], logarithmic: bool) -> None:
    """All points are inside, whatever they are; without points there is no plot."""
    given_lines = [
        Line(f"line {k}", list(zip(map(float, range(len(ys))), ys, strict=True))) for k, ys in enumerate(values)
    ]
    plot = lines(given_lines, width=900, logarithmic=logarithmic)
    points = [y for ys in values for y in ys if y is not None and (y > 0 or not logarithmic)]
    if plot is None:
        assert not points
        return
    drawn = 0
    for line in plot.drawn:
        pairs = [pair.split(",") for part in line.parts for pair in part.split()]
        for x, y in [(float(x), float(y)) for x, y in pairs] + list(line.dots):
            drawn += 1
            assert plot.left - 0.1 <= x <= plot.right + 0.1
            assert plot.top - 0.1 <= y <= plot.bottom + 0.1
    assert drawn == len(points)


def test_gaps_break_a_line_and_a_lone_point_is_a_dot() -> None:
    """A second without an answer has no latency: no line goes over it."""
    plot = lines([Line("p99", [(0, 1), (1, 2), (2, None), (3, 1), (4, None)])], width=900)
    assert plot
    assert len(plot.drawn[0].parts) == 1
    assert len(plot.drawn[0].dots) == 1


def test_names_at_the_ends_of_equal_lines_stand_apart() -> None:
    """Each has a line of its own height."""
    plot = lines([Line(f"m{k}", [(0, 1), (1, 1)]) for k in range(5)], width=900, height=200)
    assert plot
    heights = sorted(line.label[1] for line in plot.drawn)
    assert all(after - before >= 13.9 for before, after in pairwise(heights))
    assert heights[-1] <= plot.bottom + 5


def test_a_limit_is_drawn_where_it_does_not_flatten_the_rest() -> None:
    """A target far above all values is left out."""
    line = [Line("p99", [(0, 10), (1, 12)])]
    near, far = (lines(line, width=900, limits=[(value, "target")]) for value in (20, 900))
    assert near
    assert far
    assert [name for _, name in near.limits] == ["target"]
    assert not far.limits


def test_columns_are_shares_of_all() -> None:
    """The highest column reaches up to its share; an empty distribution has no plot."""
    plot = columns([(1, 2, 1), (2, 4, 3)], "ms", width=900)
    assert plot
    assert [text for *_, text in plot.bars] == ["1 to 2 ms: 1", "2 to 4 ms: 3"]
    assert plot.bars[1][2] == pytest.approx(plot.y.at(75))
    assert columns([], "ms", width=900) is None
