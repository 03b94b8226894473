"""`tritonkit report`: what was built, side by side, in one HTML file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import AsJson, Root, models_argument, project_folder
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError
from tritonkit.machine import cores

if TYPE_CHECKING:
    from collections.abc import Set

    from tritonkit.repository.report import PipelineGraph

__all__ = ["command"]


def command(
    names: Annotated[
        list[str] | None, models_argument("Models of models/; by default all of which something is built.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Write what `tritonkit build --variants ...` measured as one HTML file: tables, plots, operators.

    Nothing is built; the slowest variant of each model is profiled for a moment.

    Example: tritonkit report digits --out digits.html
    """
    from tritonkit.repository.report import collect, render, this_machine

    # Resolved now: a model's Python may change the working folder.
    file = out.resolve()
    if file.is_dir() or not file.parent.is_dir():
        found = "a folder" if file.is_dir() else "a file in a folder that is not there"
        raise UsageError(f"--out {out}", found=found, wanted="a file to write")
    machine = this_machine(cores())
    project = project_folder(root)
    reports = collect(project, names or (), threads=machine.cores, say=lambda text: note(f"{text} ..."))
    graphs = _graphs(project, {report.model for report in reports})
    page = render(reports, machine, datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"), graphs)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        reason = f"it cannot be written: {error.strerror}"
        raise UsageError(f"--out {out}", found=reason, wanted="a file to write") from None
    if as_json:
        models = [report.to_dict() for report in reports]
        print_json({"report": str(file), "machine": asdict(machine), "models": models})
    variants = _many(sum(len(report.results) for report in reports), "variant")
    note(f"{variants} of {_many(len(reports), 'model')}: {file}")


def _graphs(project: Path, reported: Set[str]) -> list[PipelineGraph]:
    """The pipelines of the reported models, as far as their files tell them."""
    from tritonkit.repository.inspection import inspect_model
    from tritonkit.repository.modelspec import load_readable

    specs, _ = load_readable(project, every=True)
    chosen = [spec for spec in specs if spec.steps and not reported.isdisjoint(one.name for one in spec.tree)]
    graphs = [inspect_model(spec, "cpu", cores()).graph for spec in chosen]
    return [graph for graph in graphs if graph is not None]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
