"""Calls of a function compared with replicas: their cost, and the rate at which both cost the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.perf.plan.test_run import DEMAND, MEASURED
from tritonkit.errors import UsageError
from tritonkit.perf.plan import FunctionPrice, make_plan
from tritonkit.perf.plan.functions import plan_function
from tritonkit.perf.plan.page import page


def test_a_call_costs_its_milliseconds_and_itself() -> None:
    """Whole milliseconds, rounded up, of a GiB; and a millionth of the price for a million."""
    price = FunctionPrice(per_gb_s=2.0, per_million=3.0, memory_mib=512)
    assert price.per_call(250) == pytest.approx(0.250 * 0.5 * 2 + 3e-6)
    assert price.per_call(249.2) == price.per_call(250)
    assert price.per_call(250.0000001) == price.per_call(250)


def test_two_replicas_cost_as_much_as_so_many_calls() -> None:
    """One that is needed and one that may be down, at 3.6 an hour each; a call of a tenth of a second is 0.0001."""
    price = FunctionPrice(per_gb_s=0.001, per_million=0, memory_mib=1024, call_ms=100)
    plan = plan_function(price, 5.0, mean_per_s=2, replica_per_s=50, spare=1, replica_per_hour=3.6)
    assert plan.break_even_per_s == pytest.approx(20)
    assert plan.break_even_replicas == 2
    assert plan.per_million == pytest.approx(100)
    assert plan.per_month == pytest.approx(2 * 0.0001 * 3600 * 730)


@given(
    st.floats(1e-7, 1e-3),
    st.floats(0, 5),
    st.floats(1, 500),
    st.floats(0.5, 5000),
    st.integers(0, 3),
    st.floats(0.01, 30),
)
def test_below_it_calls_cost_less_and_at_it_the_same(
    gb_s: float, million: float, call_ms: float, held: float, spare: int, hour: float
) -> None:
    """Against the cost of replicas at rates below, counted one by one."""
    price = FunctionPrice(gb_s, million, call_ms=call_ms)
    plan = plan_function(price, 1.0, mean_per_s=1, replica_per_s=held, spare=spare, replica_per_hour=hour)
    call_price = price.per_call(call_ms)

    def replicas(rate: float) -> float:
        count = max(1, -int(-(rate / held - 1e-9) // 1))
        return (count + spare) * hour / 3600

    if plan.break_even_per_s is None:
        for times in (0.5, 1, 3, 100):
            assert call_price * times * held <= replicas(times * held) * (1 + 1e-6)
        return
    assume(plan.break_even_per_s < 1e6 * held)
    even = plan.break_even_per_s
    assert call_price * even == pytest.approx(replicas(even), rel=1e-6)
    for share in (0.01, 0.3, 0.7, 0.99):
        assert call_price * share * even <= replicas(share * even) * (1 + 1e-6)


def test_calls_that_cost_less_than_a_busy_replica_always_do() -> None:
    """There is no rate at which they cost the same."""
    price = FunctionPrice(per_gb_s=1e-9, per_million=0, call_ms=1)
    plan = plan_function(price, 5.0, mean_per_s=2, replica_per_s=1, spare=1, replica_per_hour=9)
    assert plan.break_even_per_s is None
    assert plan.break_even_replicas is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_gb_s": -1.0},
        {"per_million": float("nan")},
        {"per_gb_s": 0.0, "per_million": 0.0},
        {"memory_mib": 64},
        {"memory_mib": 20_000},
    ],
)
def test_what_cannot_be_a_price_is_refused(wrong: dict[str, float]) -> None:
    """With the option that it stands after."""
    with pytest.raises(UsageError, match="--lambda-"):
        FunctionPrice(**({"per_gb_s": 1.0, "per_million": 1.0} | wrong))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_plan_has_it_where_both_prices_are_known() -> None:
    """In JSON and on the page; a call is what a request takes alone, unless it is said."""
    function = FunctionPrice(per_gb_s=1e-4, per_million=0.2)
    plan = make_plan(MEASURED, replace(DEMAND, function=function))
    assert plan.function is not None
    assert 10 < plan.function.call_ms < 40
    facts = json.loads(json.dumps(plan.to_dict()))["function"]
    assert facts["break_even_per_s"] > 0
    text = page(plan, "today", command="tritonkit plan")
    assert "As calls of a function" in text
    assert "calls/s" in text
    assert make_plan(MEASURED, replace(DEMAND, function=function, price=None)).function is None
