"""Options of commands that serve: a repository on the disk, or a backup that is restored into memory."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tritonkit.cli.options import read_encryption
from tritonkit.cli.output import byte_bar, note
from tritonkit.cli.started import recovered
from tritonkit.errors import UsageError

__all__ = ["AsOf", "FromBackup", "Memory", "Source", "repository_of"]

FromBackup = Annotated[
    str | None,
    typer.Option(
        "--from-backup",
        metavar="URL",
        help="Serve the latest backup of this store, restored into memory for as long as it is served.",
    ),
]
AsOf = Annotated[str | None, typer.Option(metavar="ID", help="With --from-backup: the latest whose ID begins so.")]
Memory = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="With --from-backup: a folder on a tmpfs; /dev/shm by default.")
]


@dataclass(frozen=True)
class Source:
    """Where the models come from.

    Args:
        repository: the folder; None: the project's.
        url: of a store of backups instead.
        as_of, encryption_key, memory: of the backup.
        public_key: must have signed it.
    """

    repository: Path | None
    url: str | None
    as_of: str | None
    encryption_key: Path | None
    memory: Path | None
    public_key: Path | None


def _heed_signals(held: ExitStack) -> None:
    """SIGTERM as Ctrl-C, and a terminal's end as SIGTERM, that what was restored is removed; until the stack closes."""

    def hang_up(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    wanted: dict[signal.Signals, Callable[..., Any]] = {
        signal.SIGTERM: signal.default_int_handler,
        signal.SIGHUP: hang_up,
    }
    for one, handler in wanted.items():
        former = signal.getsignal(one)
        if former != signal.SIG_IGN:  # as nohup(1) has it
            held.callback(signal.signal, one, former)
            signal.signal(one, handler)


@contextmanager
def repository_of(source: Source, project: Path) -> Iterator[Path]:
    """The folder to serve, as long as the block; what was restored is removed at the end.

    Raises:
        UsageError: options that do not go together, or as `restored_in_memory` has them.
        StoreError, PublishError: as there.
    """
    if source.url is None:
        given = {"--as-of": source.as_of, "--encryption-key": source.encryption_key, "--memory": source.memory}
        for option, value in given.items():
            if value is not None:
                raise UsageError(option, found="it stands without --from-backup", wanted="both, or neither")
        yield recovered((source.repository or project / "model_repository").resolve())
        return
    if source.repository is not None:
        raise UsageError("--repository", found="it stands beside --from-backup", wanted="one of them")
    from tritonkit.operate.store import open_store
    from tritonkit.operate.store.in_memory import MEMORY, restored_in_memory
    from tritonkit.operate.store.keys import read_public_key

    key = read_encryption(source.encryption_key)
    public = None if source.public_key is None else read_public_key(source.public_key)
    store = open_store(source.url)
    with ExitStack() as held:
        _heed_signals(held)
        with byte_bar("restoring into memory") as shown:
            folder = held.enter_context(
                restored_in_memory(
                    store,
                    as_of=source.as_of,
                    key=key,
                    public_key=public,
                    memory=source.memory or MEMORY,
                    progress=shown,
                )
            )
        note(f"restored into {folder}")
        yield folder
    note(f"{folder}: removed")
