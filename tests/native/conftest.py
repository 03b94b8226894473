"""The guard, compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.guarded import Receiver, library

LIMIT = 1000
"""The largest message of these tests, in bytes."""


@pytest.fixture(scope="session")
def guard(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guard's file."""
    return library(project, "guard", tmp_path_factory.mktemp("guard"))


@pytest.fixture(scope="module")
def receiver(guard: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A server on a socket that the guard takes for gRPC's."""
    path = str(tmp_path_factory.mktemp("receiver") / "grpc.sock")
    made = Receiver(guard, path, {"TRITONKIT_GUARD_GRPC_SOCKET": path, "TRITONKIT_GUARD_MAX_MESSAGE_BYTES": str(LIMIT)})
    yield made
    made.close()
