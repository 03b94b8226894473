"""The server that a command calls: a running one, or one that the command starts for itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.cli.output import note
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.serve import Endpoint

__all__ = ["called", "recovered", "started"]


def recovered(repository: Path) -> Path:
    """The repository, after an interrupted publish in it is finished or undone."""
    from tritonkit.repository.publish import recover

    if recover(repository):
        note(f"{repository}: finished a publish that had been interrupted")
    return repository


@contextlib.contextmanager
def started(project: Path, repository: Path, models: Sequence[str], *, http: bool = False) -> Iterator[Endpoint]:
    """A server on free ports, for as long as the block."""
    from tritonkit.serve import serve

    folder = recovered(repository)
    note("starting Triton ...")
    with serve(
        folder, models=models, require=models, root=project, http=http, grpc_port=0, http_port=0, metrics_port=0
    ) as endpoint:
        yield endpoint


@contextlib.contextmanager
def called(
    project: Path,
    repository: Path,
    models: Sequence[str],
    address: str | None,
    http_address: str | None = None,
    *,
    http: bool = False,
) -> Iterator[tuple[str, str]]:
    """gRPC and HTTP address of the running server, or of one that is started for the block."""
    if address is not None:
        yield address, http_address or f"{address.rpartition(':')[0]}:8000"
        return
    if http_address is not None:
        raise UsageError("--http-address", found="no --address", wanted="both, or neither")
    with started(project, repository, models, http=http) as endpoint:
        yield endpoint.grpc, endpoint.http
