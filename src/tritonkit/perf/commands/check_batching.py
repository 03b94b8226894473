"""`tritonkit check-batching`: whether a served model's answers depend on what else is in the batch."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.caller import Caller
from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import Address, AsJson, Root, Timeout, project_or_here
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.errors import InvalidInput, TritonkitError, UsageError

if TYPE_CHECKING:
    from tritonkit.client import ModelSignature
    from tritonkit.perf.diagnose import BatchingCheck
    from tritonkit.repository.modelspec import Network

__all__ = ["command"]

_ITEMS = 16


@expanded("check-batching")
def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", autocompletion=complete_model, help="Name of a served model.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="Items of an input: @FILE.npy with items along the first axis, a JSON list, or once for each item:"
            " text, @FILE. By default the project's quality samples.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Largest allowed difference, relative to an output's largest value; 0.001 by default, more for FP16.",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="Model version; the server's choice by default.")] = None,
    *,
    caller: Caller,
    address: Address = "127.0.0.1:8001",
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Check on a running server that an item's answer does not depend on the others of its batch.

    It sends items alone, together, shuffled, with one replaced, and from 16 callers, whose requests the server may
    join, and compares all answers with those alone. The model runs some 300 times. Exit code 1: an answer differs.

    Example: tritonkit check-batching digits_network --input image=@items.npy
    """
    from tritonkit.client import Client
    from tritonkit.perf.diagnose import check_batching

    options = caller.options()
    options["timeout_s"] = timeout_s
    with Client(address, **options) as client:
        signature = client.model(model, version).signature
        items = _given(inputs, signature) if inputs else _samples(project_or_here(root), model)
        check = check_batching(client, model, _arrays(items, signature), version=version, tolerance=tolerance)
    if as_json:
        print_json(check.to_dict())
    else:
        _print(check)
    if check.verdict != "independent":
        raise typer.Exit(1)


def _given(texts: list[str], signature: ModelSignature) -> dict[str, Any]:
    """Items by input: a name given several times has an item each time."""
    from tritonkit.perf.load.inputs import read_inputs, split_inputs

    several: dict[str, list[Any]] = {}
    for text in texts:
        notes: list[str] = []
        for name, value in read_inputs(split_inputs([text]), signature, notes).items():
            several.setdefault(name, []).append(value)
        for line in notes:
            note(line)
    return {name: values if len(values) > 1 else values[0] for name, values in several.items()}


def _has_samples(network: Network) -> bool:
    """Whether a build of the network knows its input."""
    return not (network.python or network.llm or network.folder)


def _samples(project: Path, model: str) -> dict[str, Any]:
    """The samples that the project knows for a network.

    Raises:
        UsageError: it knows none for this model.
    """
    import numpy as np

    from tritonkit.repository.export import BuildCache
    from tritonkit.repository.export.op_library import operators_of
    from tritonkit.repository.modelspec import load_all
    from tritonkit.repository.optimize.make import job_of

    reason = f"no project here knows a network {model}"
    with contextlib.suppress(TritonkitError):
        for spec in load_all(project):
            if model != spec.network_name or not _has_samples(spec.model.network):
                continue
            with contextlib.redirect_stdout(sys.stderr), operators_of(spec):
                job = job_of(spec, BuildCache.of_project(project))
                samples = job.samples
            if job.batched:
                return {
                    name: np.concatenate([sample[name] for sample in samples[:_ITEMS]])[:_ITEMS] for name in samples[0]
                }
            reason = f"the samples of {model} have no batch axis"
    raise UsageError(
        f"tritonkit check-batching {model}",
        found=f"no --input, and {reason}",
        wanted="at least two different items to send",
        todo="--input NAME=@items.npy, an array with items along the first axis",
    )


def _arrays(items: dict[str, Any], signature: ModelSignature) -> dict[str, Any]:
    """Each input's items as one array of the model's type."""
    import numpy as np

    from tritonkit.client.conform import conform

    arrays = {}
    for name, values in items.items():
        spec = signature.inputs.get(name)
        if spec is None:
            raise InvalidInput(
                f"model {signature.name}", found=f"an input {name}", wanted=f"{', '.join(signature.inputs)}"
            )
        where = f"model {signature.name}, input {name}"
        elements = [values] if isinstance(values, bytes | str) else values
        if spec.batched:
            arrays[name] = conform(elements, spec, where)
        else:
            arrays[name] = np.stack([conform(value, spec, where) for value in elements])
    return arrays


def _print(check: BatchingCheck) -> None:
    title = f"{check.model} version {check.version}: {check.verdict}"
    if check.couplings:
        columns = ["sent", "answers that differ", "worst item", "output", "differs by", "largest value"]
        rows = [
            [
                coupling.arrangement,
                f"{coupling.differing} of {coupling.compared}",
                str(coupling.item),
                coupling.output,
                _figure(coupling.difference),
                _figure(coupling.largest),
            ]
            for coupling in check.couplings
        ]
        print_table(title, columns, rows)
    else:
        print_line(f"{title}; {check.items} items: {', '.join(check.arrangements)}")
    if check.requests_per_run is not None:
        print_line(f"the server joined {check.requests_per_run:.1f} requests of the callers in a run")
    if check.found:
        print_line(f"found: {check.found}")
    if check.change:
        print_line(f"change: {check.change}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
