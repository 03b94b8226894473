"""A backup in memory for as long as it is served: nothing of it is left, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.operate.store.trees import tree
from tests.repository.publish.damaging import flip
from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store import Store, back_up
from tritonkit.operate.store.in_memory import restored_in_memory
from tritonkit.operate.store.keys import EncryptionKey


def test_it_is_there_as_long_as_the_block(repository: Path, store: Store, key: EncryptionKey, in_memory: Path) -> None:
    """For its owner alone; an error in the block does not keep it."""
    made = back_up(repository, store, key=key)

    def serve() -> None:
        with restored_in_memory(store, key=key, memory=in_memory) as folder:
            assert folder.is_relative_to(in_memory)
            assert tree(folder) == tree(repository)
            assert folder.parent.stat().st_mode & 0o077 == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve()
    with restored_in_memory(store, as_of=made.id, key=key, memory=in_memory):
        pass
    assert list(in_memory.iterdir()) == []


def test_nothing_is_left_of_what_cannot_be_restored(repository: Path, store: Store, in_memory: Path) -> None:
    """A blob that is damaged is found before anything is served."""
    back_up(repository, store)
    largest = max(Path(store.root).glob("blobs/*/*"), key=lambda file: file.stat().st_size)
    flip(largest)
    with pytest.raises(StoreError, match="damaged"), restored_in_memory(store, memory=in_memory):
        pass
    assert list(in_memory.iterdir()) == []


def test_a_folder_that_is_too_small_or_on_a_disk_is_refused(repository: Path, store: Store, small_disk: Path) -> None:
    """Before anything is written."""
    back_up(repository, store)
    with pytest.raises(UsageError, match="are free there") as caught, restored_in_memory(store, memory=small_disk):
        pass
    assert "for the backup" in caught.value.wanted
    assert list(small_disk.iterdir()) == []
    with pytest.raises(UsageError, match="not in memory"), restored_in_memory(store, memory=Path("/proc")):
        pass


def test_what_a_killed_process_has_left_is_removed(repository: Path, store: Store, in_memory: Path) -> None:
    """Not what another one serves."""
    back_up(repository, store)
    code = (
        "import sys, pathlib, time\n"
        "from tritonkit.operate.store import open_store\n"
        "from tritonkit.operate.store.in_memory import restored_in_memory\n"
        "with restored_in_memory(open_store(sys.argv[1]), memory=pathlib.Path(sys.argv[2])) as folder:\n"
        "    print(folder, flush=True)\n"
        "    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, store.url, str(in_memory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with restored_in_memory(store, memory=in_memory):
            assert left.is_dir()
        os.kill(other.pid, signal.SIGKILL)
    assert left.is_dir()
    with restored_in_memory(store, memory=in_memory):
        assert not left.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--as-of", "2026"), "--from-backup"),
        (("--memory", "shm"), "--from-backup"),
        (("--from-backup", "/no/such/store"), "no backup"),
        (("--from-backup", "/no/such/store", "--repository", "x"), "one of them"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """Exit code 2."""
    (tmp_path / "models").mkdir()
    assert message in failed(tritonkit("serve", "--root", str(tmp_path), *words), 2)
