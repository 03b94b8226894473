"""Targets as they are written."""

from __future__ import annotations

import pytest

from tritonkit.errors import UsageError
from tritonkit.measure.openloop import parse_slo


def test_percentiles_and_errors() -> None:
    """Several in one text or in several; the highest percentile is the tightest."""
    slo = parse_slo(["p99=20ms,p50=500us", "errors=0.1%"])
    assert slo.percentiles == {50.0: 0.5, 99.0: 20.0}
    assert slo.error_rate == pytest.approx(0.001)
    assert slo.tightest == (99.0, 20.0)
    assert str(slo) == "p50=0.5ms,p99=20ms,errors=0.100%"
    assert parse_slo([str(slo)]) == slo
    assert parse_slo(["p99.9=1s"]).tightest == (99.9, 1000.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "p99", "p99=20", "99=20ms", "p0=20ms", "p100=20ms", "p99=20ms,p99=30ms", "p99=-1ms",
        "p99=0ms", "errors=1%", "p99=1ms,errors=200%", "p99=1ms,errors=x", "p99=1ms,errors=nan",
    ],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    """One message with an example."""
    with pytest.raises(UsageError, match=r"such as (p99=20ms|errors=0\.1%)"):
        parse_slo([text])
