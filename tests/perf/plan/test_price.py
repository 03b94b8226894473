"""Prices as they stand on a command line, and what comes of them."""

from __future__ import annotations

import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.plan import parse_price


@pytest.mark.parametrize(
    ("text", "per_hour", "currency"),
    [
        ("0.526/h", 0.526, ""),
        ("$730/month", 1.0, "$"),
        ("EUR 24/day", 1.0, "EUR "),
        ("EUR24/day", 1.0, "EUR "),
        ("8760/year", 1.0, ""),
        ("0.001/s", 3.6, ""),
    ],
)
def test_a_price_is_read(text: str, per_hour: float, currency: str) -> None:
    """Amount, unit and currency."""
    price = parse_price(text)
    assert price.per_hour == pytest.approx(per_hour)
    assert price.currency == currency


def test_a_price_of_gpus_becomes_that_of_a_replica() -> None:
    """The GPUs that the measured replica used are multiplied; a machine's price stays."""
    price = parse_price("$2.5/gpu-h")
    assert str(price) == "$2.50/gpu-h"
    assert price.of_replica(2) == parse_price("$5/h")
    assert parse_price("$72/gpu-day").of_replica(1).per_hour == pytest.approx(3.0)
    assert parse_price("$5/h").of_replica(8) == parse_price("$5/h")
    with pytest.raises(UsageError, match="the measured replica used no GPU"):
        price.of_replica(0)


@pytest.mark.parametrize("text", ["2/gpu-", "2/gpuh", "", "0.5", "0/h", "-1/h", "0.5/fortnight", "cheap/h", "1e3/h"])
def test_what_is_no_price_is_refused(text: str) -> None:
    """With an example."""
    with pytest.raises(UsageError, match=r"0\.526/h"):
        parse_price(text)


def test_a_month_and_a_million() -> None:
    """Two machines for 730 hours; a million requests at 100 a second take 2.78 hours."""
    price = parse_price("$0.5/h")
    assert price.per_month(2) == pytest.approx(730)
    assert price.per_million(2, 100) == pytest.approx(2.78, rel=0.01)
    assert price.text(0.0123456) == "$0.0123"
    assert price.text(12.3456) == "$12.35"
    assert price.text(12345.6) == "$12,346"
    assert str(price) == "$0.5/h"
