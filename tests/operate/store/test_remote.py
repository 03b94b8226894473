"""Stores: whole files or none, and one kind of error whatever a store's library raises."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.operate.store.trees import tree
from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store import Store, open_store


class Plain(MemoryFileSystem):
    """A store with folders, of a kind that no table knows."""

    protocol = "plain"
    store = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(str(path).removeprefix("plain://"))


@pytest.fixture(params=["folder", "memory", "plain"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """One of each way of writing: by renaming on this machine, as one object, by renaming elsewhere."""
    if request.param == "folder":
        return open_store(str(tmp_path / "a" / "store"))
    if request.param == "plain":
        fsspec.register_implementation("plain", Plain, clobber=True)
        Plain.store.clear()
        return open_store("plain://bucket/store")
    fresh: Store = request.getfixturevalue("memory")
    return fresh


def test_what_is_written_can_be_read(any_store: Store) -> None:
    """In parts, in place of an older one; nothing unfinished is left."""
    assert any_store.names("folder") == []
    assert any_store.size_bytes("folder/file") is None
    any_store.write("folder/file", [b"old"])
    any_store.write("folder/file", iter([b"new", b"er"]))
    any_store.write("folder/empty", [])
    assert any_store.names("folder") == ["empty", "file"]
    assert b"".join(any_store.read("folder/file")) == b"newer"
    assert b"".join(any_store.read("folder/empty")) == b""
    assert any_store.size_bytes("folder/file") == 5
    assert any_store.size_bytes("folder") is None
    assert any_store.names("unfinished") == []


def test_what_is_removed_is_gone(any_store: Store) -> None:
    """Also if it is gone already; what lies in the folders of a folder is named from the store's own."""
    assert any_store.files_below("blobs") == {}
    for name in ("blobs/ab/abc", "blobs/cd/cde", "other/ab/abc"):
        any_store.write(name, [name.encode()])
    assert any_store.files_below("blobs") == {"blobs/ab/abc": 12, "blobs/cd/cde": 12}
    for _ in range(2):
        any_store.remove("blobs/ab/abc")
    assert any_store.files_below("blobs") == {"blobs/cd/cde": 12}
    assert any_store.size_bytes("blobs/ab/abc") is None
    assert any_store.size_bytes("other/ab/abc") == 12


@pytest.mark.parametrize("kind", [KeyboardInterrupt, StoreError])
def test_what_is_interrupted_is_not_there(tmp_path: Path, kind: type[BaseException]) -> None:
    """The older file stays, and nothing else does."""
    store = open_store(str(tmp_path))
    store.write("folder/file", [b"old"])
    before = tree(tmp_path)

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise kind("x", found="y") if kind is StoreError else kind

    with pytest.raises(kind):
        store.write("folder/file", parts())
    assert tree(tmp_path) == before


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
def test_only_files_are_read(tmp_path: Path, kind: str) -> None:
    """A pipe that somebody put into a store would hold a restore for good, a device give bytes without end."""
    store, place = open_store(str(tmp_path)), tmp_path / "blob"
    with socket.socket(socket.AF_UNIX) as listener:
        {
            "pipe": lambda: os.mkfifo(place),
            "socket": lambda: listener.bind(os.path.relpath(place)),
            "folder": place.mkdir,
            "device": lambda: place.symlink_to("/dev/zero"),
        }[kind]()
        with pytest.raises(StoreError) as caught:
            next(store.read("blob"))
    assert caught.value.exit_code == 5
    assert kind == "socket" or "a pipe, a socket or a device" in caught.value.found


def test_a_missing_file_is_an_error(any_store: Store) -> None:
    """It says which, and what to do."""
    with pytest.raises(StoreError, match="folder/no: it is missing from the store") as caught:
        b"".join(any_store.read("folder/no"))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("url", "problem", "expected"),
    [
        ("s4://bucket/models", "no store of the kind 's4'", "s3://"),
        ("s3://", "names no folder", "s3://bucket/folder"),
        ("", "names no folder", "s3://bucket/folder"),
        ("simplecache::s3://bucket/x", "no store of the kind", "s3://"),
        ("s3://x::memory://y", "names no folder", "s3://bucket/folder"),
        ("ftp://user:secret@host/x", "a password in it", "without one"),
    ],
)
def test_an_address_that_cannot_be_used(url: str, problem: str, expected: str) -> None:
    """A mistake on the command line; a password is not repeated."""
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert problem in caught.value.found
    assert expected in caught.value.wanted
    assert "secret" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the name for pip, even if it differs from the protocol's."""
    for url, module, package in (("gs://bucket/x", "gcsfs", "gcsfs"), ("abfs://b/x", "adlfs", "adlfs")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(UsageError, match="is not installed") as caught:
            open_store(url)
        assert caught.value.todo == f"pip install {package}"


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has this room's requirement for pip."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UsageError) as caught:
        open_store("memory://x")
    assert "tritonkit[store]" in caught.value.todo


def test_a_store_that_does_not_answer() -> None:
    """A port on which nobody listens: exit code 5, with the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match="ConnectionRefusedError") as caught:
            open_store(f"ftp://me@127.0.0.1:{port}/models")
    assert caught.value.exit_code == 5
    assert caught.value.where == f"ftp://me@127.0.0.1:{port}/models"


def test_a_store_that_refuses(tmp_path: Path) -> None:
    """A file where a folder should be; no rights to write, where this is not root."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used"):
        open_store(str(tmp_path / "file")).write("a/b", [b"x"])
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match="access is refused"):
            open_store(str(tmp_path / "closed")).write("a/b", [b"x"])


def test_a_full_store(small_disk: Path) -> None:
    """It says so, keeps what it has, and has nothing of the file."""
    store = open_store(str(small_disk / "store"))
    store.write("a/small", [b"x"])
    with pytest.raises(StoreError, match="the store is full"):
        store.write("a/large", [bytes(1 << 19)] * 4)
    assert tree(small_disk) == {"store/a/small": b"x"}
    store.write("a/other", [bytes(1 << 19)])
