"""`tritonkit deploy --target lambda`: a model as a function of AWS Lambda."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.cli.options import project_folder
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError
from tritonkit.operate.commands.drift import refuse_drift

if TYPE_CHECKING:
    from tritonkit.operate.deploy.serverless import Bundle

__all__ = ["deploy_lambda", "refuse"]


def deploy_lambda(
    root: Path | None,
    out: Path | None,
    model: str | None,
    variant: str | None,
    require: Sequence[str],
    check: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the folder of a function, or with `check` compare it."""
    from tritonkit.cli.progress import Announcing
    from tritonkit.operate.deploy.serverless import bundle, compare_bundle, only_model, write_bundle
    from tritonkit.operate.deploy.serverless.packages import parse_requirement

    more = [parse_requirement(text) for text in require]
    project = project_folder(root)
    name = model or only_model(project)
    made = bundle(project, name, variant, more, Announcing())
    folder = out or project / "deploy" / f"lambda-{name}"
    if check:
        todo = f"tritonkit deploy --target lambda --model {name} --out {folder}"
        refuse_drift(folder, compare_bundle(folder, made), todo, as_json)
    written = [] if check else write_bundle(folder, made, force=force)
    _print(folder, made, written, as_json)


def refuse(options: Mapping[str, object], target: str) -> None:
    """Refuse options of the other target.

    Raises:
        UsageError: one of these options is given.
    """
    for option, value in options.items():
        if value is not None:
            raise UsageError(option, found="it is for another target", wanted=f"--target {target}")


def _print(folder: Path, made: Bundle, written: Sequence[Path], as_json: bool) -> None:
    from tritonkit.repository.modelspec.units import format_bytes

    if as_json:
        print_json(
            {
                "model": made.model,
                "variant": made.variant,
                "files": sorted(made.digests),
                "written": [str(file) for file in written],
                "size_bytes": made.size_bytes,
            }
        )
        return
    if not written:
        note(f"{folder}: nothing to change")
        return
    note(f"wrote {folder}: {made.model}, {made.variant}, {format_bytes(made.size_bytes)}")
    note(f"build its image: docker build --tag {made.model}-lambda {folder}")
