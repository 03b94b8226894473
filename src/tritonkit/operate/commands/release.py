"""`tritonkit release`, `rollback`: the next version of a model under a part of the traffic, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Root, project_folder, seconds
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.option import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from tritonkit.operate.release import Released, Status
    from tritonkit.operate.release.judge import RuleState, Tally
    from tritonkit.operate.release.shadow import ShadowCounts

__all__ = ["release", "rollback"]

_SAID_S = 10.0
_COLUMNS = ("version", "requests", "failed", "refused", "p50 ms", "p95 ms", "p99 ms")


@dataclass(frozen=True)
class ReleaseOptions:
    """The steps of a release, and the rules that undo it."""

    canary: Annotated[
        str | None, Option("The first step; steps of --steps that are not larger are skipped.", metavar="1%")
    ] = None
    steps: Annotated[
        str, Option("Percentages of the requests that go to the new version, step by step.", metavar="5,25,100")
    ] = "5,25,100"
    abort_if: Annotated[
        str | None,
        Option(
            "Roll back if one of these is broken: p99>20ms, p99>2x (of the stable version's), errors>0.1%,"
            " differ>1% (of copies). By default p99>2x,errors>0.1%.",
            metavar="RULES",
        ),
    ] = None
    hold: Annotated[str, Option("Shortest duration of a step.", metavar="TIME")] = "60s"
    requests: Annotated[int, Option("Smallest number of requests that the new version answers in a step.", min=1)] = 200
    wait: Annotated[str, Option("Longest time that a step waits for these requests.", metavar="TIME")] = "10m"
    shadow: Annotated[
        str | None,
        Option(
            "First send copies of this share of gRPC requests to both versions and compare the answers; callers"
            " notice nothing.",
            metavar="10%",
        ),
    ] = None
    tolerance: Annotated[
        float,
        Option("Difference allowed between numbers of those answers, as a part of an output's largest.", min=0, max=1),
    ] = 0.01


@expanded("release")
def release(
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="A folder of models/.")],
    options: ReleaseOptions,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Build a model and release it to the running stack: as a candidate first, then step by step, or roll it back.

    Example: tritonkit release digits --steps 5,25,100 --abort-if "p99>20ms,errors>0.1%"
    """
    from tritonkit.cli.progress import Announcing
    from tritonkit.operate.release import ReleaseTerms, choose_rules, parse_percent, parse_steps
    from tritonkit.operate.release import release as run

    percents = parse_steps(options.steps, options.canary)
    copied = parse_percent(options.shadow, "--shadow") if options.shadow else 0.0
    terms = ReleaseTerms(
        percents,
        choose_rules(options.abort_if, percents, copies=bool(copied)),
        hold_s=seconds("--hold", options.hold),
        requests=options.requests,
        wait_s=seconds("--wait", options.wait),
        shadow_percent=copied,
        tolerance=options.tolerance,
    )
    try:
        with _telling() as tell:
            outcome = run(project_folder(root), model, terms, progress=Announcing(), tell=tell)
    except KeyboardInterrupt:
        note("interrupted: all requests go to the version before")
        raise
    if as_json:
        print_json(outcome.to_dict())
    else:
        _print(outcome)


def rollback(
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="A folder of models/.")],
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Return the stack and the repository to the version before the last release of a model.

    Example: tritonkit rollback digits
    """
    from tritonkit.operate.release import rollback as run

    former = run(project_folder(root), model)
    if as_json:
        print_json({"model": model, "taken_back": former.released, "released_at": former.at})
        return
    print_line(f"{model}: taken back {', '.join(former.released)}, released {former.at}")
    note(f"models/{model} itself was left: its next build or release makes the same again")


def _print(outcome: Released) -> None:
    print_table(f"Released {', '.join(outcome.changes)}", _COLUMNS, _rows(outcome.candidate, outcome.stable))
    print_line()
    print_table("Rules", ["rule", "seen", "evidence against"], _findings(outcome.findings))
    if outcome.shadow is not None:
        print_line()
        print_line(_words(outcome.shadow))
    note(f"undo it: tritonkit rollback {outcome.model}")


def _rows(candidate: Tally, stable: Tally) -> list[list[str]]:
    rows = []
    for name, tally in (("new", candidate), ("before", stable)):
        times = [tally.percentile(percent) for percent in (50, 95, 99)]
        shown = ["-" if ms is None else f"{ms:.2f}" for ms in times]
        rows.append([name, str(tally.requests), str(tally.failed), str(tally.refused), *shown])
    return rows


def _findings(findings: Sequence[RuleState]) -> list[list[str]]:
    return [
        [finding.rule, finding.found, f"{finding.evidence:.3g} of 1000{', broken' if finding.broken else ''}"]
        for finding in findings
    ]


def _words(counts: ShadowCounts) -> str:
    kinds = "; ".join(f"{kind}: {count}" for kind, count in dict(counts.kinds).items())
    dropped = (
        f", {counts.dropped} not compared, because too many came at the same time or a replica was unavailable"
        if counts.dropped
        else ""
    )
    more = f"{dropped}; {kinds}" if kinds else dropped
    return f"copies: {counts.compared} compared, {counts.differ} answered otherwise{more}"


@contextmanager
def _telling() -> Iterator[Callable[[Status], None]]:
    """The progress of a release: a table on a terminal, elsewhere a line for each step and every ten seconds."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda status: live.update(_table(status), refresh=True)


class _Lines:
    def __init__(self) -> None:
        self._doing, self._said_s = "", 0.0

    def __call__(self, status: Status) -> None:
        if status.doing == self._doing and status.seconds < self._said_s + _SAID_S:
            return
        self._doing, self._said_s = status.doing, status.seconds
        note(_line(status))


def _line(status: Status) -> str:
    if not status.requests:
        return f"{status.doing} ..."
    p99 = [tally.percentile(99) for tally in (status.candidate, status.stable)]
    times = ", p99 " + " and ".join("-" if ms is None else f"{ms:.1f} ms" for ms in p99) if any(p99) else ""
    return f"{status.doing}: {status.requests} in {status.seconds:.0f} s{times}"


def _table(status: Status) -> Any:
    from rich.console import Group
    from rich.text import Text

    from tritonkit.text import printable

    parts: list[Any] = [Text(printable(_line(status), lines=False))]
    if status.candidate.requests or status.stable.requests:
        parts.append(_grid(_COLUMNS, _rows(status.candidate, status.stable)))
    if status.findings:
        parts.append(_grid(("rule", "seen", "evidence against"), _findings(status.findings)))
    if status.shadow is not None:
        parts.append(Text(printable(_words(status.shadow), lines=False)))
    return Group(*parts)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from tritonkit.text import printable

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell, lines=False)) for cell in row))
    return table
