"""`tritonkit build`, and `python tools/build_repo.py`, which is the same."""

from __future__ import annotations

import difflib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import AsJson, Root
from tritonkit.cli.output import note, print_json, print_table
from tritonkit.errors import RenderError, UsageError
from tritonkit.spec import find_root

if TYPE_CHECKING:
    from tritonkit.build import BuildPlan
    from tritonkit.render import Repository

__all__ = ["Target", "announce", "command", "print_build"]


class Target(StrEnum):
    """Where the repository will be served."""

    cpu = "cpu"
    gpu = "gpu"


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...", help="Folders of models/; all by default.", show_default=False
        ),
    ] = None,
    target: Annotated[Target, typer.Option(help="Where it will be served.")] = Target.cpu,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The repository to write; model_repository/ by default.", show_default=False
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cores of the machine that will serve; this one's by default.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Fail if the tracked text differs from a fresh render; write nothing."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Build again what is in the cache.")
    ] = False,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Build models into a Triton repository: export, check, configure, publish.

    Example: tritonkit build digits --dry-run
    """
    from tritonkit.render import build_repository, check_repository

    folder = (root or find_root()).resolve()
    if check and (dry_run or force):
        raise UsageError(
            "--check", found="it stands beside --dry-run or --force", wanted="one of them"
        )
    if check:
        different = check_repository(
            folder, names or (), target=target.value, out=out, cores=cores, on_start=announce
        )
        _print_check(different, as_json)
        return
    repository = build_repository(
        folder, names or (), target=target.value, out=out, cores=cores, force=force,
        dry_run=dry_run, on_start=announce,
    )  # fmt: skip
    if as_json:
        print_json(_facts(repository, dry_run))
    else:
        print_build(repository, dry_run)


def announce(plan: BuildPlan) -> None:
    """Say what a build starts to do; nothing is said of what the cache holds."""
    network = plan.spec.model.network
    doing = (
        "training and exporting" if network.train else "exporting" if network.torch else "checking"
    )
    note(f"{plan.spec.name}: {doing} {plan.variant} ...")


def print_build(repository: Repository, dry_run: bool = False) -> None:
    """The build table: what each network is, and how good beside its reference."""
    from tritonkit.spec.units import format_bytes

    rows = []
    for row in repository.rows:
        artifact = row.artifact
        if artifact is None:
            rows.append([row.model, row.variant, "-", "would be built", "-", "-"])
            continue
        quality = artifact.quality
        rows.append(
            [
                row.model,
                row.variant,
                format_bytes(artifact.size_bytes),
                "-"
                if quality is None
                else f"{quality.metric} {quality.value:.4f} (reference {quality.reference:.4f})",
                "-" if quality is None else f"{quality.max_difference:.2e}",
                "cached" if row.cached else "built",
            ]
        )
    print_table(
        "Build", ["model", "variant", "size", "quality", "largest difference", "artifact"], rows
    )
    changed = [change for change in repository.changes if change.action != "unchanged"]
    for change in changed:
        version = f" {change.version}" if change.action == "new version" else ""
        note(
            f"{'would publish' if dry_run else 'published'}: {change.model}: {change.action}{version}"
        )
    if not changed and all(row.artifact for row in repository.rows):
        note(f"{repository.path}: nothing to change")
    for text in repository.notes:
        note(f"note: {text}")


def _facts(repository: Repository, dry_run: bool) -> dict[str, Any]:
    return {
        "repository": str(repository.path),
        "dry_run": dry_run,
        "models": [row.to_dict() for row in repository.rows],
        "changes": [vars(change) for change in repository.changes],
        "notes": repository.notes,
    }


def _print_check(different: dict[str, tuple[str, str]], as_json: bool) -> None:
    diffs = {
        path: "".join(
            difflib.unified_diff(
                now.splitlines(keepends=True),
                fresh.splitlines(keepends=True),
                "tracked",
                "rendered",
            )
        )
        for path, (now, fresh) in different.items()
    }
    if as_json:
        print_json({"different": diffs})
    if not diffs:
        note("tracked configuration and a fresh render agree")
        return
    raise RenderError(
        ", ".join(diffs),
        found=f"{len(diffs)} tracked files differ from a fresh render",
        todo="run python tools/build_repo.py and commit what it wrote",
        details="\n".join(diffs.values()),
    )
