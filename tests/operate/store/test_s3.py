"""A real S3 protocol: what an object store does differently from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operate.store.trees import tree
from tritonkit.errors import StoreBusy, StoreError
from tritonkit.operate.store import back_up, list_backups, open_store, prune, restore
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.marks import BACKING_UP, StoreMark

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


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
    with StoreMark(open_store(s3), BACKING_UP), pytest.raises(StoreBusy):
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
