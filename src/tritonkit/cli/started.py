"""The server that a command calls: one that is there, or one that it starts for itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.cli.output import note

if TYPE_CHECKING:
    from tritonkit.serve import Endpoint

__all__ = ["recovered", "started"]


def recovered(repository: Path) -> Path:
    """The repository, once what a killed publish left in it is finished or undone."""
    from tritonkit.publish import recover

    if recover(repository):
        note(f"{repository}: finished a publish that had been interrupted")
    return repository


@contextlib.contextmanager
def started(
    project: Path, repository: Path, models: Sequence[str], *, http: bool = False
) -> Iterator[Endpoint]:
    """A server on free ports, for as long as the block."""
    from tritonkit.serve import serve

    folder = recovered(repository)
    note("starting Triton ...")
    with serve(
        folder, models=models, root=project, http=http, grpc_port=0, http_port=0, metrics_port=0
    ) as endpoint:
        yield endpoint
