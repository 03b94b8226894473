"""`tritonkit backup`: copy what is served to a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import (
    AsJson,
    EncryptionKeyFile,
    Repository,
    Root,
    models_argument,
    project_folder,
    read_encryption,
)
from tritonkit.cli.output import byte_bar, note, print_json, print_line, print_table
from tritonkit.errors import StoreBusy, UsageError

if TYPE_CHECKING:
    from tritonkit.operate.store import Backup, Listed
    from tritonkit.operate.store.keys import EncryptionKey

__all__ = ["command"]


def command(
    url: Annotated[
        str | None,
        typer.Argument(help="The store: a folder, or s3://, gs://, abfs://, sftp:// ...", show_default=False),
    ] = None,
    names: Annotated[list[str] | None, models_argument("Models of the repository; all by default.")] = None,
    repository: Repository = None,
    encryption_key: EncryptionKeyFile = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make an encryption key, and back nothing up.")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Then keep only the N latest backups, as `tritonkit prune` does."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the backups in the store instead.")] = False,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Copy a repository to a store, if it is as it was published. Files that the store already has are not copied.

    The backup appears in the store only when it is complete. Earlier backups are kept. Prints the backup's ID.

    Example: tritonkit backup s3://bucket/models
    """
    if new_key is not None:
        from tritonkit.operate.store.keys import new_encryption_key

        new_encryption_key(new_key)
        note(f"{new_key}: a new key; without a copy of it nobody can restore what it encrypts")
        return
    if url is None:
        raise UsageError("backup", found="no store is named", wanted="tritonkit backup URL")
    key = read_encryption(encryption_key)
    if listed:
        _list(url, key, as_json)
    else:
        folder = (repository or project_folder(root) / "model_repository").resolve()
        _back_up(folder, url, tuple(names or ()), key, as_json)
        if keep is not None:
            _prune(url, keep, key)


def _back_up(folder: Path, url: str, names: tuple[str, ...], key: EncryptionKey | None, as_json: bool) -> None:
    from tritonkit.cli.started import recovered
    from tritonkit.operate.store import back_up, open_store
    from tritonkit.operate.store.index import ids, is_ahead

    store = open_store(url)
    try:
        with byte_bar("copying") as shown:
            done = back_up(recovered(folder), store, names, key=key, progress=shown)
    except KeyboardInterrupt:
        note(f"interrupted: {store.url} has no new backup; the same command goes on where this ended")
        raise
    if as_json:
        print_json({**_facts(done.id, key is not None, done), "repository": str(folder), "store": store.url})
    else:
        print_line(done.id)
    note(_said(store.url, done))
    if (latest := list(ids(store))[-1]) > done.id and is_ahead(latest):
        note(f"{store.url}: {latest} is dated in the future and counts as the latest; tritonkit prune says what to do")


def _prune(url: str, keep: int, key: EncryptionKey | None) -> None:
    from tritonkit.operate.commands.prune import summary
    from tritonkit.operate.store import open_store, prune

    try:
        done = prune(open_store(url), keep, key=key)
    except StoreBusy as error:
        note(f"nothing was removed: {error.where}: {error.found}")
    else:
        note(summary(url, done))


def _said(url: str, done: Backup) -> str:
    from tritonkit.repository.modelspec.units import format_bytes

    index = done.index
    signed = "signed" if index.signature else "not signed"
    return (
        f"{url}: {len(index.files)} files of {len(index.models)} models ({format_bytes(index.size_bytes)}),"
        f" {signed}; {done.copied_files} were copied ({format_bytes(done.copied_bytes)})"
    )


def _list(url: str, key: EncryptionKey | None, as_json: bool) -> None:
    from tritonkit.operate.store import list_backups, open_store
    from tritonkit.repository.modelspec.units import format_bytes

    store = open_store(url)
    backups = list_backups(store, key)
    if as_json:
        print_json({"store": store.url, "backups": [_facts(b.id, b.encrypted, b) for b in backups]})
        return
    rows = []
    for backup in backups:
        if backup.index is None:
            rows.append([backup.id, "-", "-", "-", backup.problem])
            continue
        size = format_bytes(backup.index.size_bytes)
        remarks = [
            name for name, is_so in (("encrypted", backup.encrypted), ("signed", backup.index.signature)) if is_so
        ]
        rows.append([backup.id, ", ".join(backup.index.models), str(len(backup.index.files)), size, ", ".join(remarks)])
    print_table(f"Backups in {store.url}", ["ID", "models", "files", "size", "remark"], rows)


def _facts(name: str, encrypted: bool, backup: Backup | Listed) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": name, "encrypted": encrypted}
    if backup.index is not None:
        facts |= {
            "created": backup.index.created,
            "models": list(backup.index.models),
            "files": len(backup.index.files),
            "size_bytes": backup.index.size_bytes,
            "signed": backup.index.signature is not None,
        }
    copied = {name: getattr(backup, name) for name in ("copied_files", "copied_bytes") if hasattr(backup, name)}
    problem = getattr(backup, "problem", "")
    return {**facts, **copied, **({"problem": problem} if problem else {})}
