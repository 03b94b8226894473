"""`tritonkit verify`: whether a repository is as it was published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tritonkit.cli.options import AsJson, Repository, Root, models_argument, project_folder
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.publish.integrity import Finding

__all__ = ["command"]


def command(
    names: Annotated[
        list[str] | None, models_argument("Models of the repository; all by default.")
    ] = None,
    repository: Repository = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Hold every file of the served versions against the hashes it was published with.

    Example: tritonkit verify digits_network
    """
    from tritonkit.publish.damage import damage
    from tritonkit.publish.integrity import Totals, foreign, verify
    from tritonkit.spec.units import format_bytes

    folder = (repository or project_folder(root) / "model_repository").resolve()
    models = tuple(names or ())
    _want_models(folder, models)
    totals = Totals()
    with _progress() as shown:
        findings = verify(folder, models, progress=shown, totals=totals)
    others = foreign(folder, models)
    if as_json:
        print_json(
            {
                "repository": str(folder), "models": totals.models, "files": totals.files,
                "size_bytes": totals.size_bytes, "not_checked": others,
                "findings": [_facts(finding) for finding in findings],
            }
        )  # fmt: skip
    if others:
        note(f"not checked, because tritonkit did not write them: {', '.join(others)}")
    if findings:
        raise damage(findings)
    note(
        f"{folder}: {totals.files} files of {totals.models} models"
        f" ({format_bytes(totals.size_bytes)}) are as they were published"
    )


def _want_models(folder: Path, names: tuple[str, ...]) -> None:
    from tritonkit.spec.document import nearest

    known = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not any((folder / name / "config.pbtxt").is_file() for name in known):
        raise UsageError(
            str(folder), found="there is no model in it", wanted="a model repository",
            todo="tritonkit build, or name one with --repository",
        )  # fmt: skip
    for name in names:
        if name not in known:
            raise UsageError(
                f"model {name!r}", found=f"{folder} does not hold it", wanted=nearest(name, known)
            )


def _facts(finding: Finding) -> dict[str, str]:
    return {
        "model": finding.model, "file": str(finding.file), "found": finding.found,
        "wanted": finding.wanted, "do": finding.todo,
    }  # fmt: skip


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; nothing elsewhere, because most repositories take a second."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
