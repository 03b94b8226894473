"""Write docs/autoscaling.svg and the table of docs/autoscaling.md: rules of autoscaling on one day of traffic.

python tools/autoscaling_page.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.autoscaled_day import AutoscaledDay, Lag, MeasuredReplica, Targets, autoscaled_day  # noqa: E402
from tools.autoscaler import Behavior, Direction, Policy  # noqa: E402
from tritonkit.perf.load.openloop import Slo  # noqa: E402
from tritonkit.perf.plan import Fleet, curve, read_traffic  # noqa: E402
from tritonkit.perf.plan.traffic import STEP_S  # noqa: E402
from tritonkit.perf.simulation import Costs, SimulatedBatcher  # noqa: E402
from tritonkit.repository.report.charts import Line, lines  # noqa: E402
from tritonkit.repository.report.page import environment  # noqa: E402

__all__ = ["days", "main", "texts"]

TRAFFIC = ROOT / "examples" / "traffic" / "day-with-bursts.csv"
PAGE, PLOT = ROOT / "docs" / "autoscaling.md", ROOT / "docs" / "autoscaling.svg"
START, END = "<!-- rules -->\n", "<!-- /rules -->\n"
TARGET_MS = 100.0
LEAST, PEAK, MOST = 2, 8, 16
"""Replicas: the fewest, those that the day's highest rate needs, and the most."""
RULES = {
    "CPU 70 %": (Targets(cpu=0.7), 300),
    "CPU 80 %": (Targets(cpu=0.8), 300),
    "queue over compute 0.5": (Targets(queue=0.5), 300),
    "pending 8": (Targets(pending=8), 300),
    "both": (Targets(queue=0.5, pending=8), 300),
    "both, 600 s": (Targets(queue=0.5, pending=8), 600),
    "both and CPU 80 %, 60 s": (Targets(cpu=0.8, queue=0.5, pending=8), 60),
    "both and CPU 80 %, 300 s": (Targets(cpu=0.8, queue=0.5, pending=8), 300),
    "both and CPU 80 %, 600 s": (Targets(cpu=0.8, queue=0.5, pending=8), 600),
}
"""Targets, and the stabilization window of scaling in, in seconds. The last is that of the component `keda`."""
SHOWN = "both and CPU 80 %, 600 s"
_POINTS = 36
"""Steps for each point of the plot."""


def days() -> dict[str, AutoscaledDay]:
    """The day under each rule."""
    fleet = Fleet(SimulatedBatcher(1, 8), Costs(0.004, 0.002, 0.001, 0.2))
    one = curve(fleet)
    held = one.highest_rate(Slo({99.0: TARGET_MS}))
    traffic, replica = read_traffic(TRAFFIC, PEAK * held), MeasuredReplica(fleet, one)
    return {
        name: autoscaled_day(
            traffic,
            replica,
            targets,
            behavior=_behavior(down_s),
            lag=Lag(),
            target_ms=TARGET_MS,
            held_per_s=held,
            least=LEAST,
            most=MOST,
        )
        for name, (targets, down_s) in RULES.items()
    }


def texts() -> dict[Path, str]:
    """The current texts of the files."""
    by_name = days()
    page = PAGE.read_text()
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return {PAGE: before + START + _table(by_name) + END + after, PLOT: _plot(by_name)}


def main(arguments: list[str] | None = None) -> int:
    """Write or check; 1 where a file is not as it would be written."""
    parser = argparse.ArgumentParser(description="Rules of autoscaling on one day, as docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    differ = 0
    for file, text in texts().items():
        if file.exists() and file.read_text() == text:
            continue
        differ += 1
        print(f"{file}: not current" if check else f"wrote {file}")
        if not check:
            file.write_text(text)
    return 1 if check and differ else 0


def _behavior(down_s: float) -> Behavior:
    """The behavior of the component `keda`, with a window of scaling in."""
    down = Direction(down_s, (Policy("Percent", 10, 60), Policy("Pods", 1, 60)))
    return Behavior(down=down)


def _table(by_name: dict[str, AutoscaledDay]) -> str:
    rows = [
        "| rule, window of scaling in | p99 over the target | requests late | replica hours | changes | flaps | lag |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, day in by_name.items():
        shown = name if " s" in name else f"{name}, {RULES[name][1]} s"
        rows.append(
            f"| {shown} | {day.p99_ms / TARGET_MS:.1f} | {day.late:.1%} | {day.replica_hours:.0f} |"
            f" {day.changes} | {day.flaps} | {day.lag_s:.0f} s |"
        )
    return "\n".join(rows) + "\n"


def _plot(by_name: dict[str, AutoscaledDay]) -> str:
    chosen = ("CPU 70 %", "pending 8", SHOWN)
    plot = lines([Line(name, _points(by_name[name])) for name in chosen], width=960, height=320)
    loader = environment(ROOT / "src/tritonkit/perf/plan/templates")
    template = loader.from_string(
        '{% import "charts.svg.j2" as svg %}'
        '{{ svg.lines(plot, "day", "Replicas", "Replicas that answer over the day.", "hour", "replicas") }}'
    )
    style = (
        "svg{font-family:sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}.axis{stroke:#333}"
        ".line{fill:none;stroke-width:1.5}.line-0{stroke:#888}.line-1{stroke:#d55e00}.line-2{stroke:#0072b2}"
    )
    text = template.render(plot=plot).strip()
    head, _, body = text.partition(">")
    lines_of = [line for line in body.splitlines() if line.strip()]
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{style}</style>\n' + "\n".join(lines_of) + "\n"


def _points(day: AutoscaledDay) -> list[tuple[float, float | None]]:
    steps = range(0, len(day.replicas), _POINTS)
    return [
        (step * STEP_S / 3600, sum(part) / len(part)) for step in steps if (part := day.replicas[step : step + _POINTS])
    ]


if __name__ == "__main__":
    sys.exit(main())
