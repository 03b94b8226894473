"""`tritonkit restore`: bring a repository back to a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from tritonkit.cli.output import byte_bar, note, print_json, print_line

if TYPE_CHECKING:
    from tritonkit.operate.store import Restored

__all__ = ["command"]


def command(
    url: Annotated[str, typer.Argument(help="The store's URL, as in `tritonkit backup`.")],
    names: Annotated[list[str] | None, models_argument("Models of the backup; all by default.")] = None,
    repository: Repository = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The latest backup whose ID begins with this; the latest of all by default."),
    ] = None,
    encryption_key: EncryptionKeyFile = None,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Refuse files that this key has not signed.")
    ] = None,
    memory_only: Annotated[
        bool, typer.Option("--memory-only", help="Refuse a repository that is not in memory, such as below /dev/shm.")
    ] = False,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Put the models of a backup in place, all of them or none; models that are unchanged are not touched.

    Every file is checked first. Models that are not in the backup stay as they are.

    Example: tritonkit restore s3://bucket/models --as-of 20260131
    """
    from tritonkit.operate.store import open_store, restore
    from tritonkit.operate.store.keys import read_public_key
    from tritonkit.operate.store.memory import require_memory

    folder = (repository or project_folder(root) / "model_repository").resolve()
    if memory_only:
        require_memory(folder)
    key = read_encryption(encryption_key)
    public = None if public_key is None else read_public_key(public_key)
    store = open_store(url)
    try:
        with byte_bar("copying") as shown:
            done = restore(store, folder, tuple(names or ()), as_of=as_of, key=key, public_key=public, progress=shown)
    except KeyboardInterrupt:
        note(f"interrupted: no model of {folder} is half restored; run the same command again")
        raise
    _print(folder, done, as_json)


def _print(folder: Path, done: Restored, as_json: bool) -> None:
    from tritonkit.operate.store.index import is_ahead

    if as_json:
        print_json({"repository": str(folder), "backup": done.id, "models": done.models, "others": done.others})
        return
    for model, what in done.models.items():
        print_line(f"{model}: {what}")
    note(f"{folder}: as in the backup {done.id}")
    if is_ahead(done.id):
        note(f"{done.id} is dated in the future: a clock is wrong, and later backups may exist (--list)")
    if done.others:
        note(f"not in the backup, and left as they are: {', '.join(done.others)}")
