"""`tritonkit plan`: how many replicas a rate needs, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Root, project_folder
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.errors import UsageError
from tritonkit.option import Option
from tritonkit.perf.commands.report_files import this_command, write_reports, written_now

if TYPE_CHECKING:
    from tritonkit.perf.plan import FunctionPlan, FunctionPrice, Measured, Plan, Price, Traffic

__all__ = ["command"]

_RULES = 5
_MOST_RATE = 1e9


class BalancingName(StrEnum):
    """The ways to spread requests over replicas."""

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    LEAST_REQUEST = "least_request"


@dataclass(frozen=True)
class FleetOptions:
    """The load of a fleet, and the way it is spread."""

    rate_per_s: Annotated[float, Option("Requests a second, at the busiest moment.", name="--rate")]
    slo: Annotated[Sequence[str], Option("The latency target.", metavar="p99=50ms")]
    price: Annotated[
        str | None,
        Option(
            "Price of a machine: per s, h, day, month or year; or of a GPU, as in $2.5/gpu-h.",
            metavar="0.526/h",
        ),
    ] = None
    traffic: Annotated[
        str,
        Option(
            "A day: steady, daily, step, spike, ramp, or lines of seconds since midnight and a rate.",
            metavar="SHAPE|FILE.csv",
        ),
    ] = "daily"
    spare: Annotated[int, Option("Replicas that may be down at the same time.", min=0, max=1000)] = 1
    start_s: Annotated[
        float | None,
        Option(
            "Time from a decision until a new replica answers; by default the start-up time measured here.",
            name="--start-up",
            metavar="TIME",
            unit="time",
        ),
    ] = None
    balancing: Annotated[BalancingName, Option("How requests are spread over the replicas.")] = (
        BalancingName.LEAST_REQUEST
    )
    cv: Annotated[
        float,
        Option("Coefficient of variation of the gaps between requests: 1 is Poisson, more is bursty.", min=0.1, max=20),
    ] = 1.0


@dataclass(frozen=True)
class ReplicaOptions:
    """The replica that is measured, and the files about it."""

    variants: Annotated[
        Sequence[str],
        Option("Also measure these variants; `spec`, `all`. May be repeated.", metavar="NAME", completes="variants"),
    ] = ()
    measured: Annotated[
        Path | None,
        Option("Plan from the file of an earlier --save, also of another machine; starts no server.", metavar="FILE"),
    ] = None
    save: Annotated[Path | None, Option("Keep the measurements of a replica.", metavar="FILE")] = None
    report: Annotated[Path | None, Option("Folder for report.html and report.json.")] = None


@dataclass(frozen=True)
class LambdaOptions:
    """The prices of AWS Lambda, for comparison."""

    lambda_price_gb_s: Annotated[
        float | None,
        Option(
            "AWS Lambda's price of a GB-second; reports the rate up to which calls cost less.",
            metavar="PRICE",
        ),
    ] = None
    lambda_price_million: Annotated[float | None, Option("AWS Lambda's price of a million calls.", metavar="PRICE")] = (
        None
    )
    lambda_memory: Annotated[
        int | None, Option("Memory of the function; 1769, one vCPU, by default.", metavar="MIB")
    ] = None
    lambda_call_s: Annotated[
        float | None,
        Option(
            "Billed time of a call; by default the time of a request that does not wait for others.",
            name="--lambda-call",
            metavar="TIME",
            unit="time",
            min=0.001,
        ),
    ] = None


@expanded("plan")
def command(
    fleet: FleetOptions,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", autocompletion=complete_model, help="A model in models/, to be measured."),
    ] = None,
    *,
    replica: ReplicaOptions,
    prices: LambdaOptions,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Plan how many replicas hold a target at a rate, their cost, possible savings, and how to scale them.

    One replica is measured on this machine for about a minute; the fleet, its failures and a day of
    autoscaling are simulated. The figures hold for machines like the measured one.

    Example: tritonkit plan sentences --rate 500 --slo p99=150ms --price 0.526/h
    """
    from tritonkit.perf.load.openloop import Arrivals, parse_slo
    from tritonkit.perf.load.rates import kept_rates
    from tritonkit.perf.plan import Demand, make_plan, parse_price

    if not 0 < fleet.rate_per_s <= _MOST_RATE:
        raise UsageError("--rate", found=f"{fleet.rate_per_s:g}", wanted=f"above 0, at most {_MOST_RATE:g}")
    target = parse_slo(fleet.slo)
    demand = Demand(
        _traffic(fleet.traffic, fleet.rate_per_s),
        target,
        parse_price(fleet.price) if fleet.price else None,
        fleet.spare,
        fleet.start_s,
        fleet.balancing.value,
        Arrivals("poisson" if fleet.cv == 1 else "bursty", fleet.cv),
        _function(prices, fleet.price),
    )
    measured = _measured(name, replica.measured, list(replica.variants), target, root)
    if replica.save is not None:
        measured.save(replica.save)
        note(f"measured: {replica.save}")
    plan = make_plan(measured, demand, lambda text: note(f"{text} ..."))
    if replica.measured is None:  # measured on this machine
        plan = replace(plan, before=kept_rates(project_folder(root), measured.model, str(target)))
    if as_json:
        print_json(plan.to_dict())
    else:
        _print(plan)
    if replica.report is not None:
        _write(replica.report, plan)


def _function(prices: LambdaOptions, price: str | None) -> FunctionPrice | None:
    """The prices of a function, all or none of them."""
    from tritonkit.perf.plan.functions import MEMORY_MIB, FunctionPrice

    gb_s, million, call_s = prices.lambda_price_gb_s, prices.lambda_price_million, prices.lambda_call_s
    if gb_s is None and million is None:
        options = {"--lambda-memory": prices.lambda_memory, "--lambda-call": call_s}
        for option in (name for name, value in options.items() if value is not None):
            raise UsageError(option, found="no price of a function", wanted="--lambda-price-gb-s too")
        return None
    needed = {"--lambda-price-gb-s": gb_s, "--lambda-price-million": million, "--price": price}
    for option in (name for name, value in needed.items() if value is None):
        raise UsageError(
            option, found="none", wanted="both prices of a function, and that of a machine to compare them with"
        )
    assert gb_s is not None  # noqa: S101
    assert million is not None  # noqa: S101
    memory = MEMORY_MIB if prices.lambda_memory is None else prices.lambda_memory
    return FunctionPrice(gb_s, million, memory, None if call_s is None else 1000 * call_s)


def _traffic(text: str, rate: float) -> Traffic:
    from tritonkit.perf.load.shapes import SHAPES
    from tritonkit.perf.plan import of_shape, read_traffic

    if text in SHAPES:
        return of_shape(text, rate)
    if Path(text).suffix or Path(text).exists():
        return read_traffic(Path(text), rate)
    raise UsageError("--traffic", found=repr(text), wanted=f"{', '.join(SHAPES)}, or a CSV file")


def _measured(name: str | None, file: Path | None, variants: list[str], slo: object, root: Path | None) -> Measured:
    from tritonkit.perf.load.openloop import Slo
    from tritonkit.perf.plan import measure, read_measured
    from tritonkit.perf.tune.run import TunePlan

    if file is not None:
        measured = read_measured(file)
        if name not in (None, measured.model):
            raise UsageError(f"--measured {file}", found=f"model {measured.model}", wanted=f"model {name}")
        return measured
    if name is None:
        raise UsageError("MODEL", found="none", wanted="a model of models/, or --measured FILE")
    assert isinstance(slo, Slo)  # noqa: S101
    plan = TunePlan(project_folder(root), name, slo, tuple(variants))
    return measure(plan, lambda text: note(f"{text} ..."))


def _print(plan: Plan) -> None:
    from tritonkit.perf.plan.price import count_text

    demand, price = plan.demand, plan.demand.price
    percent, _ = demand.slo.tightest
    tails = ", ".join(f"p{p:g} {ms:.1f} ms" for p, ms in plan.sized.tails_ms.items())
    print_line(f"one replica   holds {demand.slo} up to {plan.held_per_s:.1f}/s in a large fleet: {plan.point}")
    _print_range(plan)
    needed = f"{count_text(plan.sized.replicas)} for {demand.traffic.most_per_s:g}/s: {tails}"
    print_line(
        f"{count_text(plan.replicas)} replicas    {needed}, instances run"
        f" {plan.sized.busy:.0%} of the time; {demand.spare} more may be down"
    )
    if price is not None:
        print_line(
            f"cost          {price.text(plan.per_month(plan.replicas) or 0)} a month,"
            f" {price.text(plan.per_million(plan.replicas) or 0)} for a million requests"
        )
    if plan.measured.gpus:
        print_line(f"GPUs          {_gpus(plan)}")
    if plan.function is not None and price is not None:
        print_line(f"as a function {_as_function(plan, plan.function, price)}")
    if plan.failure is not None:
        print_line(
            f"one goes down p{percent:g} {plan.failure.before_ms:.1f} ms before, {plan.failure.down_ms:.1f} while it is"
            f" down, {plan.failure.after_ms:.1f} after"
        )
    _print_tables(plan)


def _gpus(plan: Plan) -> str:
    """The GPUs of the fleet, and their energy if it is known."""
    gpus, energy_kwh = plan.measured.gpus, plan.energy_per_million_kwh
    text = f"{gpus * plan.replicas:,}, {gpus} for each replica"
    if energy_kwh is None:
        return text
    return f"{text}; {energy_kwh:.3g} kWh for a million requests, as under the load that was measured"


def _print_tables(plan: Plan) -> None:
    """Print other choices with their replicas, and the rules of scaling over a day."""
    from tritonkit.perf.plan.price import count_text

    demand, price = plan.demand, plan.demand.price
    _, ms = demand.slo.tightest
    print_line()
    header = ["choice", "", "replicas", "of now"]
    if price is not None:
        header.append("a month")
    for title, savings in (
        ("what would save", [saving for saving in plan.savings if saving.of_now < 1]),
        ("what would not", [saving for saving in plan.savings if saving.of_now >= 1]),
    ):
        rows = [
            [saving.knob, saving.choice, count_text(saving.replicas), f"{saving.of_now:.0%}"]
            + ([] if price is None else [price.text(plan.per_month(saving.replicas) or 0)])
            for saving in savings
        ]
        if rows or title == "what would save":
            print_table(title, header, rows)
    print_line()
    print_table(
        f"a day, {demand.traffic.name}",
        ["rule", "replicas", "least, most", f"over {ms:g} ms", "behind", "changes", "flaps"],
        [
            [
                str(day.rule),
                count_text(day.replica_hours / 24),
                f"{day.least:,} to {day.most:,}",
                f"{day.late:.2%}",
                f"{day.behind_s:.0f} s",
                str(day.changes),
                str(day.flaps),
            ]
            for day in dict.fromkeys([*plan.days[:_RULES], plan.fixed])
        ],
    )


def _print_range(plan: Plan) -> None:
    """Lines about other estimates of a replica's rate, and the replicas they make; empty where all agree."""
    from tritonkit.perf.plan.price import count_text

    if plan.simulated_per_s:
        print_line(
            f"              no more than the server was seen to do here; by the costs of its runs alone"
            f" {plan.simulated_per_s:,.1f}/s"
        )
    for rate in plan.before:
        print_line(f"              {rate}, {rate.rate_per_s / max(plan.held_per_s, 1e-9):.0%} of that")
    low, high = plan.range_per_s
    fewest, most = plan.range_replicas
    if high > low:
        print_line(f"              so {low:,.1f} to {high:,.1f}/s: {count_text(fewest)} to {count_text(most)} replicas")


def _as_function(plan: Plan, function: FunctionPlan, price: Price) -> str:
    """The cost of calls, compared with the recommended day of replicas, and the rate up to which they cost less."""
    pods = plan.per_month(plan.days[0].replica_hours / 24) or 0
    cost = (
        f"{price.text(function.per_month)} a month, and {price.text(pods)} for replicas ({plan.days[0].rule}),"
        f" {price.text(function.per_million)} for a million calls of {function.call_ms:.3g} ms,"
        f" {function.memory_mib} MiB"
    )
    if function.break_even_per_s is None:
        return f"{cost}; cheaper at every rate"
    even = f"{function.break_even_per_s:.3g} calls/s, the cost of {function.break_even_replicas} replicas"
    return f"{cost}; cheaper up to {even}"


def _write(folder: Path, plan: Plan) -> None:
    import json

    from tritonkit.perf.plan.page import page

    text = page(plan, written_now(), command=this_command())
    write_reports(folder, {"report.html": text, "report.json": json.dumps(plan.to_dict(), indent=1) + "\n"})
