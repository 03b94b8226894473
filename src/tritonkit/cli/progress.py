"""The progress of a build: lines, or bars on a terminal for many variants."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from tritonkit.cli.output import note
from tritonkit.repository.optimize.progress import Progress
from tritonkit.text import printable

if TYPE_CHECKING:
    from tritonkit.repository.modelspec import Spec
    from tritonkit.repository.optimize import Result
    from tritonkit.repository.optimize.make import BuildPlan

__all__ = ["Announcing", "Showing", "bars", "progress"]

PLAIN = "onnx-fp32"


class Announcing(Progress):
    """A line for each variant that is made; none for variants in the cache."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.published = False
        self._shown: set[tuple[str, str]] = set()

    def waiting(self) -> None:
        """Say why nothing happens."""
        note("waiting for another build of this project to end ...")

    def runs(self, plan: BuildPlan) -> None:
        """Name the Python before any of it has run: a line for each model, one more if a variant adds some."""
        from tritonkit.repository.modelspec.contents import build_python

        spec = plan.spec
        files = build_python(spec, optimized=plan.variant.name != PLAIN)
        if new := [file for file in files if (spec.name, file) not in self._shown]:
            note(f"{spec.name}: runs the Python of {spec.folder}: {', '.join(new)}")
        self._shown |= {(spec.name, file) for file in new}

    def trying(self, spec: Spec) -> None:
        """Name the Python that a server is about to run."""
        from tritonkit.repository.modelspec.contents import own_python

        files = ", ".join(own_python(spec)) or "steps of the project"
        note(f"{spec.name}: a server tries its own Python in batches: {files} ...")

    def start(self, plan: BuildPlan) -> None:
        """Say what begins."""
        network = plan.spec.model.network
        doing = "training and exporting" if network.train else "exporting" if network.torch else "checking"
        note(f"{plan.spec.name}: {doing if plan.variant.name == PLAIN else 'making'} {plan.variant} ...")

    def tell(self, text: str) -> None:
        """Write a line, as all of this progress."""
        note(f"  {text}")

    def warn(self, text: str) -> None:
        """Show a warning immediately."""
        note(f"warning: {text}")

    def done(self, result: Result) -> None:
        """Keep it for the table."""
        self.results.append(result)

    def timing(self, model: str, count: int) -> None:
        """Say which step takes the next seconds."""
        note(f"{model}: measuring the speed of {count} variants in turns ...")

    def timed(self, results: Sequence[Result]) -> None:
        """Keep the results with their speed for the table, in place of those without."""
        again = {(result.model, result.variant): result for result in results}
        self.results = [again.get((result.model, result.variant), result) for result in self.results]

    def publishing(self) -> None:
        """Note that the repository is being written, for the message of an interrupted build."""
        self.published = True


class Showing(Announcing):
    """A line on a terminal for each variant, with its present step and elapsed time."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars = bars
        self._task: Any = None
        self._began = 0.0

    def start(self, plan: BuildPlan) -> None:
        """Begin a line."""
        self._began = time.monotonic()
        label = f"{plan.spec.name} {plan.variant}"
        self._task = self._bars.add_task(label, total=None, doing="beginning")

    def timing(self, model: str, count: int) -> None:
        """Begin a line for all of them."""
        self._task = self._bars.add_task(f"{model} speed of {count} variants", total=None, doing="beginning")

    def timed(self, results: Sequence[Result]) -> None:
        """End that line."""
        super().timed(results)
        self._end("measured")

    def warn(self, text: str) -> None:
        """Say it above the lines."""
        self._bars.console.print(printable(f"warning: {text}"), markup=False, highlight=False)

    def tell(self, text: str) -> None:
        """Change the line's end."""
        self.say(text)

    def say(self, text: str) -> None:
        """Change the line's end."""
        if self._task is not None:
            self._bars.update(self._task, doing=printable(text, lines=False))

    def done(self, result: Result) -> None:
        """End the line."""
        super().done(result)
        self._end(_outcome(result))

    def _end(self, how: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=1, completed=1, doing=how)
            self._task = None


@contextmanager
def progress(many: bool) -> Iterator[Announcing]:
    """The progress of a build: bars for many variants on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not (many and console.is_terminal):
        yield Announcing()
        return
    with bars(console) as shown:
        yield Showing(shown)


def bars(console: Console) -> Bars:
    """A line for each variant: its name, the elapsed time, and its present step."""
    # No markup: what a hook or a library says is text, whatever stands in brackets.
    return Bars(
        SpinnerColumn(finished_text="·"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", style="dim", markup=False),
        console=console,
    )


def _outcome(result: Result) -> str:
    if result.problem is not None:
        return "cannot be made"
    if not result.measured:
        return "made, not measured here"
    return "passed" if result.passed else "refused by the gate"
