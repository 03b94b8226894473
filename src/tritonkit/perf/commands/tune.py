"""`tritonkit tune`: how a model is to be served so that it holds a latency target at the highest rate."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AllowPlaintext, AsJson, KeyFile, Root, TargetChoice, project_folder, read_key
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.disk import unwritable
from tritonkit.extras import need_package
from tritonkit.machine import cores
from tritonkit.option import Option
from tritonkit.perf.commands.report_files import this_command, write_reports, written_now
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


@dataclass(frozen=True)
class TuneOptions:
    """The search: its target, its candidates, its time, and the server it runs on."""

    slo: Annotated[Sequence[str], Option("The target; percentiles, and errors=0.1%.", metavar="p99=50ms")]
    objective: Annotated[
        str,
        Option(
            "throughput: the highest rate. At one rate: latency, the lowest; cost, the least processor time.",
            metavar="NAME",
        ),
    ] = "throughput"
    rate_per_s: Annotated[
        float | None,
        Option(
            "Requests/s for latency and cost; by default the model's rate as it is served now.",
            name="--rate",
            metavar="R",
            unit="rate",
        ),
    ] = None
    target: Annotated[
        TargetChoice,
        Option(
            "The server of the search: tritonkit's on this machine's CPU; on its GPU, where each network may also stay"
            " on the CPU; NVIDIA's image at --address."
        ),
    ] = TargetChoice.cpu
    variants: Annotated[
        Sequence[str],
        Option(
            "Also try these variants that passed the gate; `spec`, `all`. May be repeated; by default the served one.",
            metavar="NAME",
            completes="variants",
        ),
    ] = ()
    budget_s: Annotated[
        float, Option("Time for the whole search.", name="--budget", metavar="TIME", unit="time", min=1)
    ] = 600.0
    trial_s: Annotated[
        float, Option("Time of each run under load.", name="--trial", metavar="TIME", unit="time", min=1)
    ] = 4.0
    apply: Annotated[bool, Option("Write the choice into model.yaml.")] = False
    fresh: Annotated[bool, Option("Forget the results of earlier searches.")] = False
    address: Annotated[
        str | None,
        Option(
            "gRPC address of a server that runs already; one is started by default.",
            completes="address",
            metavar="HOST:PORT",
        ),
    ] = None
    cores: Annotated[
        int | None,
        Option("Cores of the server at --address; this machine's if it runs here.", metavar="N", min=1),
    ] = None
    client_batching: Annotated[bool, Option("Also measure whether clients that batch hold a higher rate of items.")] = (
        False
    )
    report: Annotated[Path | None, Option("Folder for report.html and report.json.")] = None


@expanded("tune")
def command(
    name: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="A model in models/.")],
    options: TuneOptions,
    key_file: KeyFile = None,
    allow_plaintext_credentials: AllowPlaintext = False,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Find the best way to serve a model: variant, instances x threads, batch limit, preferred sizes, queue delay.

    A simulation of Triton's batcher, fitted to this machine, ranks all ways. The promising ones are measured under an
    open loop on a server of their own, or on a running one (--address), which afterwards serves as before. Ctrl-C gives
    the best so far; the same command continues later. Exit code 0 if a way holds the target, 1 if none does.

    With --target gpu the ways are one to four instances on the GPU or the CPU, batch limits, and no queue delay or the
    present one; the choice becomes settings for that target alone.

    The other objectives choose, at one rate, among the ways that hold the target: the lowest latency, or the least
    processor time per request.

    Example: tritonkit tune sentences --slo p99=50ms --variants spec
    """
    from tritonkit.perf.tune import changed_text, difference
    from tritonkit.perf.tune.run import tune

    if options.apply:
        need_package("ruamel.yaml", "tritonkit[tune]")
    key = None if options.address is None else read_key(key_file, options.address)
    plan = _plan(project_folder(root), name, options, key, allow_plaintext_credentials)
    with _watching(plan.budget_s, str(plan.slo), plan.objective) as listener:
        spec, outcome = tune(plan, listener)
    _keep(plan, spec, outcome)
    text = ""
    if outcome.best and find_spec("ruamel"):
        text = changed_text(spec, outcome.best.point, outcome.now, plan.target)
    diff = difference(spec, text) if text else ""
    if as_json:
        print_json(outcome.to_dict() | {"diff": diff})
    else:
        _print(outcome, diff)
    if options.report is not None:
        _write(options.report, spec, outcome, diff, plan)
    if outcome.ended:
        note(f"ended early: {outcome.ended}; the same command continues from here")
    elif not outcome.complete:
        note("the budget was too small for all promising candidates; the same command continues from here")
    if options.apply and diff:
        _apply(spec, outcome, text, options.address)
    _end(outcome)


def _plan(project: Path, name: str, options: TuneOptions, key: str | None, allow_plaintext: bool) -> TunePlan:
    from tritonkit.perf.load.openloop import parse_slo
    from tritonkit.perf.tune import Objective
    from tritonkit.perf.tune.run import TunePlan

    return TunePlan(
        project,
        name,
        parse_slo(options.slo),
        tuple(options.variants),
        options.budget_s,
        options.trial_s,
        options.fresh,
        Objective(cast("ObjectiveName", options.objective), options.rate_per_s),
        options.address,
        key,
        allow_plaintext,
        options.cores,
        options.client_batching,
        options.target.value,
    )


def _keep(plan: TunePlan, spec: Spec, outcome: Outcome) -> None:
    """Keep the rate of the model as it is served, for a plan to be compared with, and the GPUs at the best, for the
    report."""
    from tritonkit.perf.load.gpu import keep_gpus
    from tritonkit.perf.load.rates import keep_rate

    if outcome.best and outcome.report:
        keep_gpus(plan.root, spec.name, "tune", outcome.best.rate_per_s, outcome.report.gpu)
    now = outcome.current
    is_rate = plan.objective.name == "throughput" and (plan.address, plan.cores, plan.target) == (None, None, "cpu")
    if is_rate and now is not None and now.rate_per_s and not outcome.ended:
        keep_rate(plan.root, spec.name, str(plan.slo), now.rate_per_s, "tune")


def _apply(spec: Spec, outcome: Outcome, text: str, address: str | None) -> None:
    """Write the choice into model.yaml, if it was validated."""
    if outcome.ended:
        note("not applied: the choice was not validated")
        return
    try:
        spec.file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(spec.file, error) from error
    target = "" if outcome.target == "cpu" else f" --target {outcome.target}"
    there = "" if address is None else f", then tritonkit reload {spec.name} --address {address}"
    note(f"written: {spec.file}; now: tritonkit build {spec.name}{target}{there}")


def _end(outcome: Outcome) -> None:
    """If nothing was chosen, print the reason and set the exit code."""
    from tritonkit.perf.load.openloop import INTERRUPTED

    if outcome.ended == INTERRUPTED:
        raise typer.Exit(_INTERRUPTED)
    if outcome.best is None:
        holds = f"holds {outcome.slo}"
        tried = f"nothing that was measured in time {holds}" if outcome.answered else "nothing was measured in time"
        note(tried if outcome.ended else f"no way of serving {holds}")
        if outcome.limit:
            note(outcome.limit)
        raise typer.Exit(1)


def _print(outcome: Outcome, diff: str) -> None:
    if outcome.machine:
        print_line(outcome.machine)
    for name, evaluation in (("now", outcome.current), ("best", outcome.best)):
        if evaluation is not None:
            words = outcome.objective.words(evaluation, str(outcome.slo))
            print_line(f"{name:5} {words}: {evaluation.point}")
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
        print_line("model.yaml already has this choice")


def _write(folder: Path, spec: Spec, outcome: Outcome, diff: str, plan: TunePlan) -> None:
    import json

    from tritonkit.perf.tune.page import page
    from tritonkit.repository.report import this_machine

    machine = this_machine(cores())
    text = page(spec.name, outcome, machine, written_now(), diff=diff, command=this_command(), where=plan.where)
    write_reports(folder, {"report.html": text, "report.json": json.dumps(outcome.to_dict(), indent=1) + "\n"})


@contextlib.contextmanager
def _watching(budget_s: float, slo: str, objective: Objective) -> Iterator[Any]:
    """The listener that shows the search: a live table on a terminal, lines elsewhere."""
    from tritonkit.perf.tune import Listener

    class Lines(Listener):
        """Prints a line for each event."""

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
        """Passes each event to the live view."""

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
    """The search as a rich renderable: its present step, the best point, the last points."""

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
        for evaluation in self.done[-_SHOWN:]:
            rate = f"{evaluation.rate_per_s:8.1f}/s" if evaluation.rate_per_s else "  no better"
            table.add_row(Text(printable(f"  {rate}  {evaluation.point}", lines=False), "dim"))
        table.add_row(Text(printable(self.at, lines=False)))
        table.add_row(Text(printable(f"  {self.last}", lines=False)))
        return table
