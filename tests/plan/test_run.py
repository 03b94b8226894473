"""Plans as a whole, from a file of measurements; and their page."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.measure.openloop import Slo
from tritonkit.plan import Demand, Measured, Plan, make_plan, of_shape, parse_price, read_measured
from tritonkit.plan.page import page
from tritonkit.simulation import Costs
from tritonkit.tune import Group, Point

NOW, FASTER = Group("onnx-fp32", 2, 1), Group("onnx-int8", 1, 2)
MEASURED = Measured(
    "net", Point(NOW, 8),
    {
        NOW: Costs(0.006, 0.008, 0.002, weights=(0.5, 1.5), factors=(0.9, 1.1), contention=1.5),
        FASTER: Costs(0.004, 0.003, 0.002),
    },
    (1, 4, 8), 3.5, "a processor", 2,
)  # fmt: skip
DEMAND = Demand(of_shape("daily", 800.0), Slo({99.0: 100.0}), parse_price("$0.5/h"))


@cache
def plan() -> Plan:
    """One for all tests that look at it."""
    return make_plan(MEASURED, DEMAND)


def test_a_plan_has_replicas_cost_and_savings() -> None:
    """Figures that hang together."""
    found = plan()
    assert found.replicas == found.sized.replicas + 1
    assert found.sized.tails_ms[99.0] <= 100
    assert found.per_month(2) == pytest.approx(730)
    assert found.start_s == 3.5
    assert found.best.group == FASTER
    choices = {saving.knob: saving for saving in found.savings}
    assert choices["way of serving"].replicas < found.replicas
    assert choices["spare replicas"].replicas == found.sized.replicas
    assert choices["autoscaling"].of_now < 1
    random = next(s for s in found.savings if s.choice == "random")
    assert random.replicas >= found.replicas
    assert found.failure
    assert found.failure.down_ms >= found.failure.before_ms
    looser = [now for _, now, _ in found.costs_by_target if now is not None]
    assert looser == sorted(looser, reverse=True)


def test_the_first_rule_keeps_the_target_and_is_the_cheapest_that_does() -> None:
    """Others follow."""
    found = plan()
    keeping = [day for day in found.days if day.keeps(99.0)]
    assert found.days[0] is min(keeping, key=lambda day: day.replica_hours)
    assert found.fixed.rule.metric == "none"


def test_json_has_the_same_figures() -> None:
    """Without the minutes, and without a price nothing that costs."""
    facts = json.loads(json.dumps(plan().to_dict()))
    assert facts["replicas"] == plan().replicas
    assert facts["currency"] == "$"
    assert "minutes" not in facts["days"][0]
    free = replace(plan(), demand=replace(DEMAND, price=None)).to_dict()
    assert free["per_month"] is None
    assert free["per_million"] is None


@pytest.mark.parametrize("price", [DEMAND.price, None])
def test_the_page_shows_all_of_it(price: object) -> None:
    """Four plots, rules, savings; nothing from outside as markup, no address."""
    found = replace(plan(), demand=replace(DEMAND, price=price))
    found = replace(found, measured=replace(MEASURED, model="<b>net</b>"))
    text = page(found, "today", command="tritonkit plan <i>")
    assert text.count("<svg") == 4
    assert "<b>net</b>" not in text
    assert "&lt;i&gt;" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert ("a month" in text) == (price is not None)
    assert "no autoscaling" in text


def test_a_target_that_no_number_holds_says_what_limits() -> None:
    """What a request takes alone."""
    with pytest.raises(UsageError, match="requests that wait for no other take p99"):
        make_plan(MEASURED, replace(DEMAND, slo=Slo({99.0: 5.0})))


def test_what_was_measured_goes_into_a_file_and_comes_back(tmp_path: Path) -> None:
    """Equal in all."""
    file = tmp_path / "new" / "net.json"
    MEASURED.save(file)
    assert read_measured(file) == MEASURED


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 7}', '{"version": 1, "model": "net", "costs": []}']
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    """With where it should come from."""
    file = tmp_path / "net.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="--save"):
        read_measured(file)


def test_a_file_that_is_not_there_is_refused() -> None:
    """One message."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_measured(Path("none.json"))
