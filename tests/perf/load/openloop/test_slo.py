"""Targets as they are written."""

from __future__ import annotations

import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import parse_slo


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
        "",
        "p99",
        "p99=20",
        "99=20ms",
        "p0=20ms",
        "p100=20ms",
        "p99=20ms,p99=30ms",
        "p99=-1ms",
        "p99=0ms",
        "errors=1%",
        "p99=1ms,errors=200%",
        "p99=1ms,errors=x",
        "p99=1ms,errors=nan",
    ],
)
def test_what_is_no_target(text: str) -> None:
    """One message with an example."""
    with pytest.raises(UsageError, match=r"such as (p99=20ms|errors=0\.1%)"):
        parse_slo([text])


def test_targets_of_tokens() -> None:
    """Targets of tokens stand next to those of the whole answer, or alone; the whole answer's is the tightest."""
    slo = parse_slo(["ttft_p99=500ms,itl_p99=50ms", "itl_p50=20ms,p99=10s,errors=1%"], language=True)
    assert (slo.ttft, slo.itl) == ({99.0: 500.0}, {50.0: 20.0, 99.0: 50.0})
    assert slo.percentiles == {99.0: 10_000.0}
    assert slo.tightest == (99.0, 10_000.0)
    assert str(slo) == "ttft_p99=500ms,itl_p50=20ms,itl_p99=50ms,p99=10000ms,errors=1.000%"
    assert parse_slo([str(slo)], language=True) == slo
    assert parse_slo(["ttft_p90=1s"], language=True).tightest == (90.0, 1000.0)


@pytest.mark.parametrize("text", ["ttft_p99=1s", "p99=1s,itl_p50=1ms"])
def test_tokens_have_no_target_where_there_are_none(text: str) -> None:
    """The target is refused, with the reason."""
    with pytest.raises(UsageError, match="times of a language model's tokens"):
        parse_slo([text])


@pytest.mark.parametrize("text", ["ttft_p99", "ttft=1s", "tpot_p99=1s", "ttft_p99=1s,ttft_p99=2s", "errors=1%"])
def test_what_is_no_target_of_tokens(text: str) -> None:
    """One message with an example."""
    with pytest.raises(UsageError, match="ttft_p99=500ms"):
        parse_slo([text], language=True)
