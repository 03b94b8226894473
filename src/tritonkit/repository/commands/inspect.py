"""`tritonkit inspect`: the content of a model folder and the Python it would run; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tritonkit.cli.options import AsJson, Root, models_argument, project_folder
from tritonkit.cli.output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from tritonkit.repository.inspection import Inspection
    from tritonkit.repository.modelspec import Spec

__all__ = ["command"]

_SHOWN = 40


def command(
    names: Annotated[
        list[str] | None,
        models_argument("Folders of models/, or paths of model folders elsewhere; all of models/ by default."),
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Say what model folders contain, what Python would run and when, and what would be served.

    Nothing of a folder is run: no import, no pickle, no network. Look before you build what others wrote.

    Example: tritonkit inspect digits
    """
    from tritonkit.machine import cores
    from tritonkit.repository.inspection import inspect_model

    project = project_folder(root)
    inspections = [inspect_model(spec, "cpu", cores()) for spec in _specs(project, names or [])]
    if as_json:
        print_json({"models": [inspection.to_dict() for inspection in inspections]})
        return
    for number, inspection in enumerate(inspections):
        if number:
            print_line()
        _print(inspection)
        _print_packages(project, inspection.spec)


def _specs(project: Path, names: list[str]) -> list[Spec]:
    """The specs of models/ by name, those of other places by path."""
    from tritonkit.repository.modelspec import load, load_named, load_readable

    if not names:
        specs, failed = load_readable(project, every=True)
        if failed and not specs:
            raise next(iter(failed.values()))
        for name, error in failed.items():
            note(f"warning: {name} is left out: {error.in_a_line()}")
        return specs
    named = [load(Path(name).resolve(), project) if "/" in name else load_named(project, name) for name in names]
    # The networks in a spec's own pipeline are part of its text.
    return [one for spec in named for one in spec.tree if one.folder == spec.folder]


def _print(inspection: Inspection) -> None:
    source = ", ".join(f"{key}: {value}" for key, value in inspection.network.items()) or "a pipeline of other models"
    print_line(f"{inspection.spec.name}: {inspection.spec.folder}, {source}, served as {inspection.variant}")
    print_line()
    if not inspection.spec.entry:
        _print_files(inspection)
    _print_onnx(inspection)
    _print_models(inspection)


def _print_files(inspection: Inspection) -> None:
    from tritonkit.repository.modelspec.units import format_bytes

    rows = [[file.path, format_bytes(file.size_bytes), file.remark] for file in inspection.files]
    more = len(rows) - _SHOWN
    shown = [*rows[:_SHOWN], *([[f"{more} more, see --json", "", ""]] if more > 0 else [])]
    print_table("Files", ["file", "size", "remark"], shown)
    print_line()
    if inspection.python:
        uses = [[use.when, use.file, use.what] for use in inspection.python]
        print_table("Python that would run, with your rights", ["when", "file", "for"], uses)
    else:
        print_line("No Python of the folder would run.")
    print_line()


def _print_models(inspection: Inspection) -> None:
    models = [
        [
            plan.name,
            plan.backend or "ensemble",
            str(plan.max_batch_size),
            ", ".join(map(str, plan.inputs)),
            ", ".join(map(str, plan.outputs)),
        ]
        for plan in inspection.models
    ]
    if models:
        columns = ["Triton model", "backend", "max batch", "inputs", "outputs"]
        print_table("Would be served", columns, models)
    if inspection.graph:
        print_line()
        for line in inspection.graph.lines():
            print_line(line)
    for plan in inspection.models:
        if called := plan.parameters.get("tritonkit.calls"):
            print_line(f"{plan.name} calls {', '.join(called.split())}")
        for text in plan.notes:
            note(f"note: {text}")
    for text in inspection.unknown:
        note(f"note: {text}")


def _print_packages(project: Path, spec: Spec) -> None:
    """Print the packages that the model's own Python has for itself, and whether they are made."""
    from tritonkit.repository.modelspec.units import format_bytes
    from tritonkit.serve.stub_python import environments_of

    environments = environments_of(project, "cpu")
    for model, needed in spec.requirements.items():
        made = environments.find(needed)
        state = "not made yet" if made is None else f"packages: {len(made.packages)}, {format_bytes(made.size_bytes)}"
        shown = ", ".join(line.split(" --hash")[0] for line in needed.lines[:8])
        print_line(f"{model} has packages for itself: {shown}{' ...' if len(needed.lines) > 8 else ''} ({state})")


def _print_onnx(inspection: Inspection) -> None:
    facts = inspection.onnx
    if facts is None:
        return
    rows = [
        ["made by", facts.producer or "-"],
        ["opsets", ", ".join(f"{name} {version}" for name, version in facts.opsets.items())],
        ["inputs", ", ".join(facts.inputs)],
        ["outputs", ", ".join(facts.outputs)],
        ["operators", f"{facts.operators} in all"],
        ["numbers", facts.numbers or "FP32"],
        ["custom operators", ", ".join(facts.custom_operators) or "none"],
        ["weights in other files", ", ".join(facts.external_files) or "none"],
    ]
    print_table("ONNX file", ["", ""], rows)
    print_line()
