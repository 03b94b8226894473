"""`tritonkit verify`: whether a repository is as it was published."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import AsJson, Repository, Root, models_argument, project_folder
from tritonkit.cli.output import byte_bar, note, print_json
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.repository.publish.integrity import Damage

__all__ = ["command"]


def command(
    names: Annotated[list[str] | None, models_argument("Models of the repository; all by default.")] = None,
    repository: Repository = None,
    public_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also require this key's signature on every file, as `tritonkit sign` makes it."
        ),
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Check every file of the served versions against the hash recorded when it was published.

    With a public key, no model or file of any version may be changed, missing or added since signing.

    Example: tritonkit verify digits_network
    """
    from tritonkit.repository.modelspec.units import format_bytes
    from tritonkit.repository.publish.damage import damage
    from tritonkit.repository.publish.integrity import Totals, foreign, verify

    folder = (repository or project_folder(root) / "model_repository").resolve()
    models = tuple(names or ())
    _want_models(folder, models)
    totals = Totals()
    with byte_bar("verifying") as shown:
        findings = verify(folder, models, progress=shown, totals=totals)
    if public_key is not None:
        damaged = {finding.file for finding in findings}
        findings += [f for f in _unsigned(folder, models, public_key) if f.file not in damaged]
    others = foreign(folder, models) if public_key is None else []
    if as_json:
        findings_facts = [_facts(finding) for finding in findings]
        print_json({"repository": str(folder), **asdict(totals), "not_checked": others, "findings": findings_facts})
    if others:
        note(f"not checked, because tritonkit did not write them: {', '.join(others)}")
    if findings:
        raise damage(findings)
    if public_key is not None:
        note(f"{folder}: all of it is signed by {public_key}")
    note(
        f"{folder}: {totals.files} files of {totals.models} models"
        f" ({format_bytes(totals.size_bytes)}) are as they were published"
    )


def _unsigned(folder: Path, models: tuple[str, ...], public_key: Path) -> list[Damage]:
    """The files that are not as the owner of the key signed them."""
    from tritonkit.operate.store.keys import read_public_key
    from tritonkit.operate.store.whole import unsigned

    key = read_public_key(public_key)
    with byte_bar("checking the signature") as shown:
        return unsigned(folder, models, key, shown)


def _want_models(folder: Path, names: tuple[str, ...]) -> None:
    from tritonkit.repository.modelspec.document import nearest

    models_there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not any((folder / name / "config.pbtxt").is_file() for name in models_there):
        raise UsageError(
            str(folder),
            found="there is no model in it",
            wanted="a model repository",
            todo="tritonkit build, or name one with --repository",
        )
    for name in names:
        if name not in models_there:
            raise UsageError(f"model {name!r}", found=f"{folder} does not hold it", wanted=nearest(name, models_there))


def _facts(finding: Damage) -> dict[str, str]:
    return {
        "model": finding.model,
        "file": str(finding.file),
        "found": finding.found,
        "wanted": finding.wanted,
        "do": finding.todo,
    }
