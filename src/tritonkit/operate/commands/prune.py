"""`tritonkit prune`: remove old backups from a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import AsJson, EncryptionKeyFile, read_encryption
from tritonkit.cli.output import note, print_json, print_line

if TYPE_CHECKING:
    from tritonkit.operate.store import Pruned

__all__ = ["command", "summary"]


def command(
    url: Annotated[str, typer.Argument(help="The store's URL, as in `tritonkit backup`.")],
    keep: Annotated[int, typer.Option(metavar="N", help="The number of latest backups to keep.")],
    encryption_key: EncryptionKeyFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and show what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old backups from a store, and the files that no other backup holds. Prints the IDs.

    While a backup is being made, nothing is removed, and the exit code is 5.

    Example: tritonkit prune s3://bucket/models --keep 7 --dry-run
    """
    from tritonkit.operate.store import open_store, prune

    store = open_store(url)
    done = prune(store, keep, key=read_encryption(encryption_key), dry_run=dry_run)
    if as_json:
        print_json({"store": store.url, "dry_run": dry_run, **asdict(done)})
        return
    for name in done.backups:
        print_line(name)
    note(summary(store.url, done, "would be removed" if dry_run else "were removed"))


def summary(url: str, done: Pruned, what: str = "were removed") -> str:
    """The result of a removal in one line."""
    from tritonkit.repository.modelspec.units import format_bytes

    return (
        f"{url}: {len(done.backups)} backups and {done.files} files ({format_bytes(done.size_bytes)}) {what},"
        f" {len(done.kept)} backups are left"
    )
