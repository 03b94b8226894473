"""When requests are sent: as many as the rate says, as evenly or not as the kind says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop.arrivals import Arrivals, Kind, draw, mean_share, read_trace
from tritonkit.perf.load.shapes import SHAPES


@pytest.mark.parametrize(("kind", "cv"), [("poisson", 1.0), ("constant", 0.0), ("bursty", 4.0)])
def test_gaps_have_the_variation_of_their_kind(kind: Kind, cv: float) -> None:
    """The mean gap is one over the rate; its coefficient of variation is that of the kind."""
    gaps = np.diff(draw(Arrivals(kind, 4.0, seed=3), 1000, 100))
    assert gaps.mean() == pytest.approx(0.001, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rate_follows_the_shape(shape: str) -> None:
    """In each tenth of the run as many arrive as the shape says, within what chance allows."""
    moments = draw(Arrivals(shape=shape), 5000, 20)
    counts, _ = np.histogram(moments, 10, (0, 20))
    for tenth, count in enumerate(counts):
        points = [SHAPES[shape]((tenth + (k + 0.5) / 100) / 10) for k in range(100)]
        expected = 5000 * 2 * float(np.mean(points))
        assert abs(count - expected) < 5 * expected**0.5 + 1
    assert mean_share(shape) <= 1


@settings(deadline=None)
@given(
    st.sampled_from(["poisson", "constant", "bursty"]), st.floats(0.1, 2000), st.floats(0.1, 30), st.integers(0, 1000)
)
def test_moments_ascend_and_lie_in_the_run(kind: Kind, rate: float, seconds: float, seed: int) -> None:
    """Every kind has the requested rate; and the same seed gives the same moments."""
    arrivals = Arrivals(kind, 3.0, seed=seed)
    moments = draw(arrivals, rate, seconds)
    assert (np.diff(moments) >= 0).all()
    assert not len(moments) or (moments[0] >= 0 and moments[-1] <= seconds)
    assert np.array_equal(moments, draw(arrivals, rate, seconds))


def test_too_many_for_the_memory() -> None:
    """Refused before they are drawn."""
    with pytest.raises(UsageError, match="at most 50,000,000"):
        draw(Arrivals(), 1e6, 100)


def test_a_trace_is_read_with_and_without_a_name(tmp_path: Path) -> None:
    """The first column counts, empty lines do not."""
    file = tmp_path / "trace.csv"
    file.write_text("time_s,who\n0.5,a\n\n0.5,b\n2,c\n")
    assert read_trace(file).tolist() == [0.5, 0.5, 2.0]
    file.write_text("0\n1e-3\n")
    assert read_trace(file).tolist() == [0.0, 0.001]


@pytest.mark.parametrize(
    ("text", "line"), [("0\nsoon\n", 2), ("0\n2\n1\n", 3), ("at\n-1\n", 2), ("nan\n", 1), ("0\ninf\n", 2)]
)
def test_a_bad_line_of_a_trace_is_named(tmp_path: Path, text: str, line: int) -> None:
    """File and line, and what was wanted."""
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"trace.csv:{line}: .*\n.*seconds since the start"):
        read_trace(file)


def test_a_trace_that_is_none(tmp_path: Path) -> None:
    """A missing file, one without a line, and one that is not text are refused."""
    with pytest.raises(UsageError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    file = tmp_path / "trace.csv"
    file.write_text("time_s\n")
    with pytest.raises(UsageError, match="no line with a time"):
        read_trace(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(file)
