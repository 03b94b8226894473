"""`tritonkit tune`: how a model is to be served so that it holds a latency target at the highest rate."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tritonkit.cli.options import AllowPlaintext, AsJson, KeyFile, Root, project_folder, rate_per_s, read_key, seconds
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.disk import unwritable
from tritonkit.errors import UsageError
from tritonkit.extras import need_package
from tritonkit.machine import cores
from tritonkit.text import printable

if TYPE_CHECKING:
    from tritonkit.perf.load.openloop.find_rate import RateTrial
    from tritonkit.perf.tune import Evaluation, Objective, Outcome, Point
    from tritonkit.perf.tune.objective import ObjectiveName
    from tritonkit.perf.tune.run import TunePlan
    from tritonkit.repository.modelspec import Spec

__all__ = ["command"]

_INTERRUPTED = 130
_SHOWN = 8


def command(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="A model of models/.")],
    slo: Annotated[list[str], typer.Option(metavar="p99=50ms", help="The target; percentiles, and errors=0.1%.")],
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="throughput: the highest rate. At one rate: latency, the lowest; cost, the least processor time.",
        ),
    ] = "throughput",
    rate: Annotated[
        str | None,
        typer.Option(metavar="R", help="Requests/s of latency and cost; by default what the model holds now."),
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variants",
            metavar="NAME",
            help="Also try these, of the gate's; `spec`, `all`. May be repeated; by default the one that is served.",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="For all of it.")] = "10min",
    trial: Annotated[str, typer.Option(metavar="TIME", help="How long a run under load lasts.")] = "4s",
    apply: Annotated[bool, typer.Option("--apply", help="Write the choice into model.yaml.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what an earlier search found.")] = False,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="gRPC address of a server that runs already; one is started by default."
        ),
    ] = None,
    key_file: KeyFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
    machine_cores: Annotated[
        int | None,
        typer.Option(
            "--cores", metavar="N", min=1, help="Cores of the server at --address; this machine's if it is on this one."
        ),
    ] = None,
    client_batching: Annotated[
        bool, typer.Option("--client-batching", help="Also see whether clients that batch hold a higher rate of items.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Folder for report.html and report.json.")] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Find how a model is to be served: variant, instances x threads, batch limit, preferred sizes, queue delay.

    A simulation of Triton's batcher, fitted to this machine, ranks all ways; the promising ones are
    measured under an open loop on a server of their own, or on one that runs already (--address), which serves as
    before at the end. Ctrl-C gives the best so far; the same command goes on later.
    0 if a way holds the target, 1 if none does.

    Other objectives are sought at one rate: of all ways that hold the target there, the one with the lowest latency, or
    with the least processor time of the server for a request.

    Example: tritonkit tune sentences --slo p99=50ms --variants spec
    """
    from tritonkit.perf.load.openloop import INTERRUPTED, parse_slo
    from tritonkit.perf.load.rates import keep_rate
    from tritonkit.perf.tune import changed_text, difference
    from tritonkit.perf.tune.run import TunePlan, tune

    if apply:
        need_package("ruamel.yaml", "tritonkit[tune]")
    project = project_folder(root)
    plan = TunePlan(
        project,
        name,
        parse_slo(slo),
        tuple(variants or ()),
        seconds("--budget", budget, 1),
        seconds("--trial", trial, 1),
        fresh,
        _objective(objective, rate_per_s(rate)),
        address,
        None if address is None else read_key(key_file, address),
        allow_plaintext_credentials,
        machine_cores,
        client_batching,
    )
    with _watching(plan.budget_s, str(plan.slo), plan.objective) as listener:
        spec, outcome = tune(plan, listener)
    now = outcome.current
    is_rate = plan.objective.name == "throughput" and address is None and machine_cores is None
    if is_rate and now is not None and now.rate_per_s and not outcome.ended:
        keep_rate(project, spec.name, str(plan.slo), now.rate_per_s, "tune")
    text = ""
    if outcome.best and find_spec("ruamel"):
        text = changed_text(spec, outcome.best.point, outcome.now)
    diff = difference(spec, text) if text else ""
    if as_json:
        print_json(outcome.to_dict() | {"diff": diff})
    else:
        _print(outcome, diff)
    if report is not None:
        _write(report, spec, outcome, diff, plan)
    if outcome.ended:
        note(f"ended early: {outcome.ended}; the same command goes on from here")
    elif not outcome.complete:
        note("the budget was too small to try all that is promising; the same command goes on from here")
    if apply and diff and outcome.ended:
        note("not applied: the choice was not validated")
    elif apply and diff:
        try:
            spec.file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise unwritable(spec.file, error) from error
        there = "" if address is None else f", then tritonkit reload {spec.name} --address {address}"
        note(f"written: {spec.file}; now: tritonkit build {spec.name}{there}")
    if outcome.ended == INTERRUPTED:
        raise typer.Exit(_INTERRUPTED)
    if outcome.best is None:
        tried = (
            "nothing was measured in time"
            if not outcome.seen
            else f"nothing that was measured in time holds {plan.slo}"
        )
        note(tried if outcome.ended else f"no way of serving holds {plan.slo}")
        if outcome.limit:
            note(outcome.limit)
        raise typer.Exit(1)


def _objective(name: str, rate: float | None) -> Objective:
    from tritonkit.perf.tune import Objective

    return Objective(cast("ObjectiveName", name), rate)


def _print(outcome: Outcome, diff: str) -> None:
    for name, found in (("now", outcome.current), ("best", outcome.best)):
        if found is not None:
            words = outcome.objective.words(found, str(outcome.slo))
            print_line(f"{name:5} {words}: {found.point}")
    if outcome.gain is not None:
        gain = outcome.objective.gain_words(outcome.gain)
        print_line(f"{gain}, {outcome.measurements} runs, {outcome.seconds:.0f} s")
    if (clients := outcome.client_batching) is not None:
        print_line(
            f"clients that batch {clients}: {clients.rate_per_s:.1f} items/s hold {outcome.slo},"
            f" worst tail {clients.tail_ms:.1f} ms"
        )
    if diff:
        print_line()
        print_line(diff.rstrip("\n"))
    elif outcome.best is not None and outcome.best.point == outcome.now:
        print_line("model.yaml says so already")


def _write(folder: Path, spec: Spec, outcome: Outcome, diff: str, plan: TunePlan) -> None:
    import json

    from tritonkit.perf.tune.page import page
    from tritonkit.repository.report import this_machine

    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    command = shlex.join(["tritonkit", *sys.argv[1:]])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(
            page(spec.name, outcome, this_machine(cores()), written, diff=diff, command=command, where=plan.where),
            encoding="utf-8",
        )
        (folder / "report.json").write_text(json.dumps(outcome.to_dict(), indent=1) + "\n")
    except OSError as error:
        found = f"it cannot be written: {error.strerror}"
        raise UsageError(f"--report {folder}", found=found, wanted="a folder") from None
    note(f"reports: {folder}")


@contextlib.contextmanager
def _watching(budget_s: float, slo: str, objective: Objective) -> Iterator[Any]:
    """What tells of the search: a table that changes on a terminal, lines elsewhere."""
    from tritonkit.perf.tune import Listener

    class Lines(Listener):
        """A line for each thing that happens."""

        def stage(self, stage: str, text: str) -> None:
            note(f"{stage}: {text}")

        def trial(self, point: Point, trial: RateTrial) -> None:
            note(f"  {_words(trial)}")

        def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
            if evaluation.problem:
                note(f"  cannot be served: {evaluation.problem.splitlines()[0]}")

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    view = _View(budget_s, slo, objective)

    class Shown(Listener):
        """The same into the view."""

        def stage(self, stage: str, text: str) -> None:
            view.at, view.last = f"{stage}: {text}", ""

        def trial(self, point: Point, trial: RateTrial) -> None:
            view.last = _words(trial)

        def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
            view.done.append(evaluation)
            view.best = best

    with Live(view, console=console, refresh_per_second=4, transient=True):
        yield Shown()


def _words(trial: RateTrial) -> str:
    tail = "no right answer" if trial.tail_ms is None else f"{trial.tail_ms:.1f} ms"
    late = "" if trial.valid else " (the generator was late)"
    return f"{trial.rate_per_s:.1f}/s: {tail}: {'holds' if trial.holds else 'missed'}{late}"


class _View:
    """The search as a rich renderable: what it is at, the best, the last points."""

    def __init__(self, budget_s: float, slo: str, objective: Objective) -> None:
        self.began, self.budget_s, self.slo = time.monotonic(), budget_s, slo
        self.objective = objective
        self.at = self.last = ""
        self.best: Evaluation | None = None
        self.done: list[Evaluation] = []

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        spent = time.monotonic() - self.began
        head = f"tuning for {self.slo}: {spent:.0f} of {self.budget_s:.0f} s, {len(self.done)} points"
        table.add_row(Text(head, "bold"))
        if self.best is not None:
            best = f"best {self.objective.words(self.best, self.slo).strip()}: {self.best.point}"
            table.add_row(Text(printable(best, lines=False), "green"))
        for each in self.done[-_SHOWN:]:
            rate = f"{each.rate_per_s:8.1f}/s" if each.rate_per_s else "  no better"
            table.add_row(Text(printable(f"  {rate}  {each.point}", lines=False), "dim"))
        table.add_row(Text(printable(self.at, lines=False)))
        table.add_row(Text(printable(f"  {self.last}", lines=False)))
        return table
