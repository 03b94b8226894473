"""Repositories, keys and stores for the tests of copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import fsspec
import pytest

from tests.repository.publish.test_publish import rendered
from tritonkit.operate.store import Store, open_store
from tritonkit.operate.store.keys import EncryptionKey, new_encryption_key, read_encryption_key
from tritonkit.repository.publish.publish import publish


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two models as they were published; `net` is larger than a chunk."""
    folder = tmp_path / "repository"
    models = [
        rendered(tmp_path / "net", bytes(range(256)) * 5000, "net"),
        rendered(tmp_path / "other", b"other weights", "other"),
    ]
    publish(folder, models)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A folder as a store."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def memory() -> Iterator[Store]:
    """A store in this process' memory."""
    yield open_store("memory://copies/of-models")
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm("/copies", recursive=True)


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder on a tmpfs with room."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def key(tmp_path: Path) -> EncryptionKey:
    """A key that encrypts."""
    new_encryption_key(tmp_path / "encryption-key")
    return read_encryption_key(tmp_path / "encryption-key")
