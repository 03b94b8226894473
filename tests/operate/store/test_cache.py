"""Files that several processes share: fetched once, never trusted, never in the way."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.stores import HttpFolder
from tests.waiting import eventually
from tritonkit.errors import StoreError
from tritonkit.operate.store import back_up, open_store
from tritonkit.operate.store.cache import FileCache, open_cache
from tritonkit.operate.store.contents import StoredFile

LIMIT = 1 << 20


def entry(content: bytes) -> StoredFile:
    """A file of a backup."""
    return StoredFile("model.onnx", sha256(content).hexdigest(), len(content))


def copied(cache: FileCache, content: bytes, fetched: list[bytes]) -> bytes:
    """Content of a target; content that had to be fetched is added to `fetched`."""

    def fetch() -> Iterator[bytes]:
        fetched.append(content)
        yield content[:3]
        yield content[3:]

    target = io.BytesIO(b"before")
    target.seek(6)
    cache.copy(entry(content), target, fetch)
    return target.getvalue().removeprefix(b"before")


def opened(folder: Path, limit: int = LIMIT) -> FileCache:
    """A cache as the next process finds it."""
    return open_cache(folder, limit, [])


def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    """The second process has it out of the cache."""
    fetched: list[bytes] = []
    for _ in range(2):
        cache = opened(tmp_path)
        assert copied(cache, b"weights", fetched) == b"weights"
    assert fetched == [b"weights"]
    assert (cache.given_bytes, cache.problem) == (7, "")
    assert not list((tmp_path / "unfinished").iterdir())


@pytest.mark.parametrize("what", ["changed", "cut off", "longer", "empty"])
def test_a_file_that_was_changed_is_fetched_again(tmp_path: Path, what: str) -> None:
    """The target has the right one, and so has the cache."""
    fetched: list[bytes] = []
    copied(opened(tmp_path), b"weights", fetched)
    file = opened(tmp_path).path(entry(b"weights").sha256)
    file.write_bytes({"changed": b"weighty", "cut off": b"weigh", "longer": b"weights!"}.get(what, b""))
    assert copied(opened(tmp_path), b"weights", fetched) == b"weights"
    assert len(fetched) == 2
    assert file.read_bytes() == b"weights"


def test_pipes_in_a_shared_cache_are_done_without(tmp_path: Path) -> None:
    """Neither one in a file's place nor one in a lock's place is waited for."""
    fetched: list[bytes] = []
    cache = opened(tmp_path)
    file = cache.path(entry(b"weights").sha256)
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    os.mkfifo(tmp_path / "locks" / file.parent.name)
    assert copied(cache, b"weights", fetched) == b"weights"
    assert fetched == [b"weights"]


def test_what_a_store_has_damaged_is_not_kept(tmp_path: Path) -> None:
    """The error is the store's, and the next one asks the store again."""

    def fetch() -> Iterator[bytes]:
        yield b"weigh"
        raise StoreError("blob", found="it is damaged")

    with pytest.raises(StoreError, match="damaged"):
        opened(tmp_path).copy(entry(b"weights"), io.BytesIO(), fetch)
    assert not [file for file in tmp_path.rglob("*/*") if file.is_file() and "locks" not in str(file)]


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    """Files that are needed now stay, and one that is larger than all room is not kept."""
    contents = [bytes([number]) * 400 for number in range(3)]
    for age, content in enumerate(contents[:2]):
        copied(opened(tmp_path), content, [])
        used = 1000 + age
        os.utime(opened(tmp_path).path(entry(content).sha256), (used, used))
    cache = open_cache(tmp_path, 1000, [entry(contents[0]).sha256])
    copied(cache, contents[2], [])
    there = [cache.path(entry(content).sha256).is_file() for content in contents]
    assert there == [True, False, True]
    assert copied(cache, b"x" * 2000, []) == b"x" * 2000
    assert "need more than" in cache.problem
    cache = open_cache(tmp_path, 500, [entry(contents[2]).sha256])
    assert cache.prune() == 1
    assert [path.name for path in tmp_path.glob("blobs/*/*")] == [entry(contents[2]).sha256]


def test_a_folder_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    """Here a file is in its place; the reason is kept."""
    (tmp_path / "file").write_text("")
    cache = opened(tmp_path / "file")
    fetched: list[bytes] = []
    assert copied(cache, b"weights", fetched) == b"weights"
    assert fetched
    assert "file" in cache.problem
    cache.prune()


def test_a_disk_that_is_full_is_done_without(small_disk: Path) -> None:
    """The target has all of the file, and the disk nothing of it."""
    content = os.urandom(3 << 20)
    cache = opened(small_disk, 10 << 20)
    assert copied(cache, content, []) == content
    assert "No space left" in cache.problem
    assert not list(small_disk.glob("unfinished/*"))


def test_a_writer_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Its lock goes with it, and its unfinished file when the next one wants the same."""
    program = (
        "import sys, time, io; from pathlib import Path\n"
        "from tritonkit.operate.store.cache import open_cache\n"
        "from tritonkit.operate.store.contents import StoredFile\n"
        "def fetch():\n    yield b'wei'\n    print('fetching', flush=True)\n    time.sleep(600)\n"
        "cache = open_cache(Path(sys.argv[1]), 1 << 20, [])\n"
        "cache.copy(StoredFile('m', sys.argv[2], 7), io.BytesIO(), fetch)"
    )
    words = [sys.executable, "-c", program, str(tmp_path), entry(b"weights").sha256]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"fetching\n"
        fetched: list[bytes] = []
        thread = threading.Thread(target=copied, args=(opened(tmp_path), b"weights", fetched))
        thread.start()
        assert not fetched  # it waits for who has the lock
        process.send_signal(signal.SIGKILL)
    thread.join(60)
    assert fetched == [b"weights"]
    assert not list(tmp_path.glob("unfinished/*"))
    assert copied(opened(tmp_path), b"weights", fetched) == b"weights"
    assert len(fetched) == 1


def test_pods_of_a_node_fetch_once(repository: Path, http_folder: HttpFolder, tmp_path: Path) -> None:
    """Three processes run concurrently, like init containers: every file comes over the network once."""
    back_up(repository, open_store(str(http_folder.folder)))
    command = [sys.executable, "-m", "tritonkit.cli", "deploy", "fetch", "--from", http_folder.url]
    shared = ["--cache", str(tmp_path / "cache"), "--to"]
    pods = [
        subprocess.Popen([*command, *shared, str(tmp_path / f"pod-{number}")], stdout=subprocess.PIPE)
        for number in range(3)
    ]
    logs = [pod.communicate()[0].decode() for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0, 0]
    requests = {path: n for path, n in http_folder.asked.items() if "/blobs/" in path}
    assert requests
    assert set(requests.values()) == {1}
    assert all("verified in" in log for log in logs)
    eventually(lambda: not list((tmp_path / "cache").glob("unfinished/*")), "no unfinished file")
