"""Values with units."""

import pytest

from tritonkit.repository.modelspec.units import format_bytes, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "microseconds"), [("500us", 500), ("2ms", 2_000), ("1.5s", 1_500_000), ("1 min", 60_000_000), ("0us", 0)]
)
def test_durations_become_microseconds(text: str, microseconds: int) -> None:
    """A number and a unit of time is a whole number of microseconds."""
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(("text", "size"), [("64MiB", 64 * 2**20), ("1GB", 10**9), ("512B", 512)])
def test_sizes_become_bytes(text: str, size: int) -> None:
    """Binary and decimal units are distinguished."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize("value", [500, 2.5, "500", "us", "5 hours", "-1ms", "0.5us", "1ms2"])
def test_a_duration_without_a_clear_unit_is_refused(value: object) -> None:
    """A bare number, an unknown unit and a part of a microsecond are errors that show an example."""
    with pytest.raises(ValueError, match="such as 500us"):
        parse_duration(value)


@pytest.mark.parametrize(("size", "text"), [(512, "512 B"), (90_868_376, "86.7 MiB"), (3 * 2**30, "3.0 GiB")])
def test_sizes_for_people(size: int, text: str) -> None:
    """Sizes are shown in the largest binary unit that fits."""
    assert format_bytes(size) == text
