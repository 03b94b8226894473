"""Plans as a whole, from a file of measurements; and their page."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.perf.load.gpu import GPU, looks_of_run
from tritonkit.errors import UsageError
from tritonkit.perf.commands.plan import _gpus
from tritonkit.perf.load.gpu import gpu_report
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.load.rates import HeldRate, keep_rate, kept_rates
from tritonkit.perf.plan import Demand, Measured, Plan, make_plan, of_shape, parse_price, read_measured
from tritonkit.perf.plan.measured import _used
from tritonkit.perf.plan.page import page
from tritonkit.perf.simulation import Costs
from tritonkit.perf.tune import InstanceGroup, Point

NOW, FASTER = InstanceGroup("onnx-fp32", 2, 1), InstanceGroup("onnx-int8", 1, 2)
MEASURED = Measured(
    "net",
    Point(NOW, 8),
    {
        NOW: Costs(0.006, 0.008, 0.002, weights=(0.5, 1.5), factors=(0.9, 1.1), contention=1.5),
        FASTER: Costs(0.004, 0.003, 0.002),
    },
    (1, 4, 8),
    3.5,
    "a processor",
    2,
)
DEMAND = Demand(of_shape("daily", 800.0), Slo({99.0: 100.0}), parse_price("$0.5/h"))


@cache
def plan() -> Plan:
    """One for all tests that look at it."""
    return make_plan(MEASURED, DEMAND)


@pytest.mark.slow
def test_a_plan_has_replicas_cost_and_savings() -> None:
    """Figures that hang together."""
    made = plan()
    assert made.replicas == made.sized.replicas + 1
    assert made.sized.tails_ms[99.0] <= 100
    assert made.per_month(2) == pytest.approx(730)
    assert made.start_s == 3.5
    assert made.best.group == FASTER
    choices = {saving.knob: saving for saving in made.savings}
    assert choices["way of serving"].replicas < made.replicas
    assert choices["spare replicas"].replicas == made.sized.replicas
    assert choices["autoscaling"].of_now < 1
    random = next(s for s in made.savings if s.choice == "random")
    assert random.replicas >= made.replicas
    assert made.failure
    assert made.failure.down_ms >= made.failure.before_ms
    looser = [now for _, now, _ in made.costs_by_target if now is not None]
    assert looser == sorted(looser, reverse=True)


def test_the_first_rule_keeps_the_target_and_is_the_cheapest_that_does() -> None:
    """Others follow."""
    made = plan()
    keeping = [day for day in made.days if day.keeps(99.0)]
    assert made.days[0] is min(keeping, key=lambda day: day.replica_hours)
    assert made.fixed.rule.metric == "none"


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
    made = replace(plan(), demand=replace(DEMAND, price=price))
    made = replace(made, measured=replace(MEASURED, model="<b>net</b>"))
    text = page(made, "today", command="tritonkit plan <i>")
    assert text.count("<svg") == 4
    assert "<b>net</b>" not in text
    assert "&lt;i&gt;" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert ("a month" in text) == (price is not None)
    assert "no autoscaling" in text


@pytest.mark.slow
def test_gpus_are_priced_and_their_energy_is_counted() -> None:
    """Two GPUs a replica at a price for each; 0.1 J a request is 0.028 kWh a million; without GPUs nothing is said."""
    measured = replace(MEASURED, gpus=2, energy_per_request_j=0.1)
    made = make_plan(measured, replace(DEMAND, price=parse_price("$2.5/gpu-h")))
    assert made.per_month(1) == pytest.approx(5 * 730)
    assert made.energy_per_million_kwh == pytest.approx(0.0278, rel=0.01)
    assert made.to_dict()["gpus_per_replica"] == 2
    assert _gpus(made) == (
        f"{2 * made.replicas}, 2 for each replica; 0.0278 kWh for a million requests, as under the load that was"
        " measured"
    )
    assert "0.0278 kWh" in page(made, "today", command="")
    assert "GPU" not in page(plan(), "today", command="")
    assert plan().energy_per_million_kwh is None
    with pytest.raises(UsageError, match="used no GPU"):
        make_plan(MEASURED, replace(DEMAND, price=parse_price("$2.5/gpu-h")))


def test_only_gpus_that_the_load_used_count() -> None:
    """Others of the machine idle; without GPUs, or energy, there is none."""
    idle = [replace(look, busy=0.0) for look in looks_of_run(10, "GPU-2")]
    gpu = gpu_report({GPU: looks_of_run(10), "GPU-2": idle}, 0.0, 10.0, 57_700)
    assert _used(gpu) == (1, pytest.approx(0.1))
    assert _used(gpu_report({"GPU-2": idle}, 0.0, 10.0, 57_700)) == (0, None)
    assert _used(None) == (0, None)


def test_a_target_that_no_number_holds_says_what_limits() -> None:
    """The latency of a single request."""
    with pytest.raises(UsageError, match="even alone, requests take p99"):
        make_plan(MEASURED, replace(DEMAND, slo=Slo({99.0: 5.0})))


def test_what_was_measured_goes_into_a_file_and_comes_back(tmp_path: Path) -> None:
    """Equal in all."""
    file = tmp_path / "new" / "net.json"
    MEASURED.save(file)
    assert read_measured(file) == MEASURED
    on_gpus = replace(MEASURED, gpus=2, energy_per_request_j=0.1)
    on_gpus.save(file)
    assert read_measured(file) == on_gpus


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 7}', '{"version": 1, "model": "net", "costs": []}'])
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


@pytest.mark.slow
def test_no_more_is_promised_than_a_server_was_seen_to_do() -> None:
    """Costs outside the runs (steps, the wire, the generator) bound all ways equally; the rest is a range."""
    capacity = MEASURED.costs[NOW].capacity(MEASURED.now.batcher)
    measured = replace(MEASURED, most_per_s=0.45 * capacity)
    made = make_plan(measured, DEMAND)
    assert made.held_per_s <= measured.most_per_s
    assert made.simulated_per_s == pytest.approx(plan().held_per_s)
    assert made.sized.replicas >= DEMAND.traffic.most_per_s / measured.most_per_s
    assert made.sized.replicas > plan().sized.replicas
    assert made.range_per_s == (made.held_per_s, made.simulated_per_s)
    low, high = made.range_replicas
    assert low < high == made.replicas
    before = HeldRate("net", str(DEMAND.slo), made.held_per_s / 2, "tune", "2026-11-27 03:10", 2)
    compared = replace(made, before=(before,))
    assert compared.range_per_s[0] == before.rate_per_s
    assert compared.range_replicas[1] == 2 * made.sized.replicas + DEMAND.spare
    facts = json.loads(json.dumps(compared.to_dict()))
    assert facts["measured_before"][0]["by"] == "tune"
    assert facts["replica_per_s_range"] == list(compared.range_per_s)
    assert "held by tune on 2026-11-27 03:10" in page(compared, "today", command="")


@pytest.mark.slow
def test_more_than_enough_seen_changes_nothing() -> None:
    """A server that did what its costs say, or a file of before that does not say what it did."""
    capacity = MEASURED.costs[NOW].capacity(MEASURED.now.batcher)
    made = make_plan(replace(MEASURED, most_per_s=2 * capacity), DEMAND)
    assert (made.held_per_s, made.simulated_per_s) == (plan().held_per_s, 0.0)
    assert made.range_replicas == (made.replicas, made.replicas)
    facts = MEASURED.to_dict()
    del facts["most_per_s"]
    assert Measured.from_dict(facts) == MEASURED


@pytest.mark.slow
def test_the_best_way_is_never_worse_than_the_present_one() -> None:
    """At no target that the page shows."""
    for made in (plan(), make_plan(replace(MEASURED, now=Point(FASTER, 8)), DEMAND)):
        for _, now, best in made.costs_by_target:
            assert best is None or now is None or best <= now


def test_rates_are_kept_by_model_target_and_command(tmp_path: Path) -> None:
    """The last of each; what cannot be read or written is as nothing."""
    assert kept_rates(tmp_path, "net", "p99=20ms") == ()
    keep_rate(tmp_path, "net", "p99=20ms", 100.0, "tune")
    keep_rate(tmp_path, "net", "p99=20ms", 90.0, "load --find-rate")
    keep_rate(tmp_path, "net", "p99=20ms", 110.0, "tune")
    keep_rate(tmp_path, "net", "p99=50ms", 500.0, "tune")
    rates = kept_rates(tmp_path, "net", "p99=20ms")
    assert [(rate.by, rate.rate_per_s) for rate in rates] == [("load --find-rate", 90.0), ("tune", 110.0)]
    assert "90.0/s held by load --find-rate on 2" in str(rates[0])
    (tmp_path / ".tritonkit" / "rates.json").write_text("[3]")
    assert kept_rates(tmp_path, "net", "p99=20ms") == ()
    (tmp_path / "file").write_text("")
    keep_rate(tmp_path / "file", "net", "p99=20ms", 100.0, "tune")
