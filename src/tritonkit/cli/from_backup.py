"""Options of commands that serve: a repository on the disk, or a backup that is restored into memory."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tritonkit.cli.options import project_folder, project_or_here, read_encryption
from tritonkit.cli.output import byte_bar, note
from tritonkit.cli.started import recovered
from tritonkit.errors import UsageError
from tritonkit.option import Option

__all__ = ["Source", "repository_of"]


@dataclass(frozen=True)
class Source:
    """The models to serve: those of a repository, or of a backup."""

    repository: Annotated[Path | None, Option("A model repository; model_repository/ by default.")] = None
    from_backup: Annotated[
        str | None,
        Option(
            "Serve the latest backup of this store, restored into memory for as long as it is served.", metavar="URL"
        ),
    ] = None
    as_of: Annotated[
        str | None, Option("With --from-backup: the latest backup whose ID begins with this.", metavar="ID")
    ] = None
    encryption_key: Annotated[
        Path | None, Option("With --from-backup: the key file of encrypted backups.", metavar="FILE")
    ] = None
    memory: Annotated[
        Path | None, Option("With --from-backup: a folder on a tmpfs; /dev/shm by default.", metavar="FOLDER")
    ] = None
    public_key: Annotated[
        Path | None,
        Option("Refuse files that this key has not signed (`tritonkit sign`).", metavar="FILE"),
    ] = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the models come from outside the project."""
        return self.repository is not None or self.from_backup is not None

    def project(self, root: Path | None) -> Path:
        """The project; the working folder if there is none and the models come from elsewhere."""
        return project_or_here(root) if self.is_elsewhere else project_folder(root)


def _heed_signals(held: ExitStack) -> None:
    """Treat SIGTERM as Ctrl-C and SIGHUP as SIGTERM until the stack closes, so that the restored files are removed."""

    def hang_up(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    handlers: dict[signal.Signals, Callable[..., Any]] = {
        signal.SIGTERM: signal.default_int_handler,
        signal.SIGHUP: hang_up,
    }
    for one, handler in handlers.items():
        former = signal.getsignal(one)
        if former != signal.SIG_IGN:  # as nohup(1) has it
            held.callback(signal.signal, one, former)
            signal.signal(one, handler)


@contextmanager
def repository_of(source: Source, project: Path) -> Iterator[Path]:
    """The folder to serve during the block; restored files are removed at its end.

    Raises:
        UsageError: options cannot be used together, or `restored_in_memory` raises it.
        StoreError, PublishError: `restored_in_memory` raises it.
    """
    if source.from_backup is None:
        options = {"--as-of": source.as_of, "--encryption-key": source.encryption_key, "--memory": source.memory}
        for option, value in options.items():
            if value is not None:
                raise UsageError(option, found="no --from-backup", wanted="both, or neither")
        yield recovered((source.repository or project / "model_repository").resolve())
        return
    if source.repository is not None:
        raise UsageError(
            "--repository and --from-backup", found="both of them", wanted="one of them: they cannot be used together"
        )
    from tritonkit.operate.store import open_store
    from tritonkit.operate.store.in_memory import MEMORY, restored_in_memory
    from tritonkit.operate.store.keys import read_public_key

    key = read_encryption(source.encryption_key)
    public = None if source.public_key is None else read_public_key(source.public_key)
    store = open_store(source.from_backup)
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
