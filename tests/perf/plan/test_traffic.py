"""A day's rate from a shape or a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.plan import of_shape, read_traffic
from tritonkit.perf.plan.traffic import DAY_S, STEP_S


def test_a_shape_has_its_highest_rate() -> None:
    """With noise, too; least in the night."""
    day = of_shape("daily", 300.0)
    assert day.most_per_s == pytest.approx(300)
    assert len(day.rates_per_s) == DAY_S / STEP_S
    four = int(4 * 3600 / STEP_S)
    assert day.rates_per_s[four] == pytest.approx(60, rel=0.35)
    assert of_shape("steady", 5.0, noisy=False).mean_per_s == pytest.approx(5)
    assert (of_shape("daily", 3.0, seed=1).rates_per_s != of_shape("daily", 3.0).rates_per_s).any()


def test_a_recorded_day_keeps_its_form(tmp_path: Path) -> None:
    """The rate follows a straight line between its points, and its highest value is the requested one."""
    file = tmp_path / "day.csv"
    file.write_text("second,rate\n0,0\n43200,50\n86400,0\n")
    day = read_traffic(file, 200.0)
    assert day.most_per_s == pytest.approx(200)
    assert day.mean_per_s == pytest.approx(100, rel=0.01)
    assert day.name == "day.csv"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rate above 0"),
        ("0,0\n10,0\n", "no rate above 0"),
        ("0,5\nlater,6\n", "day.csv:2"),
        ("0,5\n7\n", "day.csv:2"),
        ("0,5\n90000,6\n", "day.csv:2"),
        ("0,5\n10,-6\n", "day.csv:2"),
        ("60,5\n\n30,6\n", "day.csv:3"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, words: str) -> None:
    """File and line."""
    file = tmp_path / "day.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_traffic(file, 1.0)


def test_a_file_that_is_not_there() -> None:
    """One message."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_traffic(Path("none.csv"), 1.0)
