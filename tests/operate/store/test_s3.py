"""A real S3 protocol: what an object store does differently from a folder."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.operate.store.trees import tree
from tests.waiting import eventually
from tritonkit.errors import StoreBusy, StoreError
from tritonkit.operate.store import back_up, list_backups, open_store, prune, restore
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.marks import BACKING_UP, Mark

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server of our own."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            files = fsspec.filesystem("s3", skip_instance_cache=True)
            eventually(lambda: _is_made(files), "the S3 server")
            yield "s3://models/copies"
        finally:
            server.terminate()


def _is_made(files: Any) -> bool:
    try:
        files.mkdir("models")
    except Exception:  # not before the server listens
        return False
    return True


def test_there_and_back(s3: str, repository: Path, tmp_path: Path, key: EncryptionKey) -> None:
    """Plain and encrypted, with nothing copied twice; an interrupted object does not appear."""
    store = open_store(s3)
    made = back_up(repository, store)
    assert back_up(repository, open_store(s3)).copied_files == 0
    restore(store, tmp_path / "plain", as_of=made.id)
    back_up(repository, store, key=key)
    restore(store, tmp_path / "sealed", key=key)
    assert tree(tmp_path / "plain") == tree(tmp_path / "sealed") == tree(repository)
    assert len(list_backups(open_store(s3))) == 3
    with Mark(open_store(s3), BACKING_UP), pytest.raises(StoreBusy):
        prune(store, 1, key=key)
    done = prune(store, 1, key=key)
    assert (len(done.backups), done.files) == (2, made.copied_files)
    assert prune(open_store(s3), 1, key=key).files == 0
    restore(store, tmp_path / "again", key=key)

    def parts() -> Iterator[bytes]:
        yield bytes(60 << 20)  # more than a part, so that an upload has begun
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write("folder/file", parts())
    assert store.size_bytes("folder/file") is None
    with pytest.raises(StoreError):
        open_store("s3://no-such-bucket/x").write("a", [b"x"])
