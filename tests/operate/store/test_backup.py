"""Backups: nothing is copied twice, a backup that is interrupted is not there, and only what is whole is copied."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.operate.store.trees import tree
from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import rendered
from tritonkit.errors import ServerError, StoreError, UsageError
from tritonkit.operate.store import Store, back_up, list_backups, open_store, sign
from tritonkit.operate.store.keys import EncryptionKey, new_signing_key, read_signing_key
from tritonkit.repository.publish.publish import publish


def test_all_files_are_in_the_store(repository: Path, store: Store) -> None:
    """Each content once, named by its hash, and progress ends at the whole."""
    reports: list[tuple[int, int]] = []
    made = back_up(repository, store, progress=lambda *figures: reports.append(figures))
    assert list(made.index.models) == ["net", "other"]
    contents = set(tree(repository).values())
    blobs = {name: data for name, data in tree(Path(store.root)).items() if name.startswith("blobs/")}
    assert set(blobs.values()) == contents
    assert made.copied_files == len(blobs) == len(contents) < len(made.index.files)
    assert reports[-1] == (made.copied_bytes, made.copied_bytes)
    assert [backup.id for backup in list_backups(store)] == [made.id]


def test_what_is_there_is_not_copied_again(repository: Path, store: Store, tmp_path: Path) -> None:
    """A second backup copies what is new only, and the first stays."""
    first = back_up(repository, store)
    again = back_up(repository, store)
    assert (again.copied_files, again.copied_bytes) == (0, 0)
    publish(repository, [rendered(tmp_path / "net", b"second", "net")], keep={"net"})
    third = back_up(repository, store)
    assert 0 < third.copied_bytes < 10_000
    assert [backup.id for backup in list_backups(store)] == [first.id, again.id, third.id]
    assert any(entry.path == "2/model.onnx" for entry in third.index.models["net"])


def test_named_models_only(repository: Path, memory: Store) -> None:
    """The others are neither looked at nor copied."""
    flip(repository / "net" / "1" / "model.onnx")
    made = back_up(repository, memory, ["other"])
    assert list(made.index.models) == ["other"]
    with pytest.raises(UsageError, match="does not hold it"):
        back_up(repository, memory, ["other", "nets"])


def test_an_interrupted_backup_goes_on(repository: Path, store: Store) -> None:
    """It is not there, nothing unfinished is, and the next one copies only what lacks."""

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(repository, store, progress=stop)
    assert list_backups(store) == []
    before = tree(Path(store.root))
    assert all(name.startswith("blobs/") for name in before)
    made = back_up(repository, store)
    assert made.copied_files + len(before) == len(set(tree(repository).values()))


def test_half_a_file_in_the_store_is_written_again(repository: Path, store: Store) -> None:
    """A killed copy leaves half a file in stores that show unfinished writes."""
    made = back_up(repository, store)
    whole = tree(Path(store.root))
    name = next(name for name in whole if name.startswith("blobs/"))
    (Path(store.root) / name).write_bytes(whole[name][:-1])
    assert back_up(repository, store).copied_files == 1
    assert tree(Path(store.root))[name] == whole[name]
    assert made.id in {backup.id for backup in list_backups(store)}


def test_only_what_is_whole_is_copied(repository: Path, store: Store, tmp_path: Path) -> None:
    """A damaged file of the served version, or of the one before, which `verify` does not read."""
    flip(repository / "net" / "1" / "model.onnx")
    with pytest.raises(ServerError, match=r"1/model\.onnx: sha256"):
        back_up(repository, store)
    assert tree(Path(store.root)) == {}
    (repository / "net" / "1" / "model.onnx").write_bytes(bytes(range(256)) * 5000)
    publish(repository, [rendered(tmp_path / "net", b"second", "net")], keep={"net"})
    flip(repository / "net" / "1" / "model.onnx")
    with pytest.raises(ServerError, match=r"1/model\.onnx: sha256"):
        back_up(repository, store)
    assert list_backups(store) == []


def test_nothing_to_back_up(tmp_path: Path, store: Store) -> None:
    """No folder, an empty one, and a store inside the repository."""
    with pytest.raises(UsageError, match="no such folder"):
        back_up(tmp_path / "no", store)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="nothing to back up"):
        back_up(tmp_path / "empty", store)
    with pytest.raises(UsageError, match="it lies in the repository"):
        back_up(tmp_path / "empty", open_store(str(tmp_path / "empty" / "store")))


def test_an_encrypted_store_tells_nothing(repository: Path, store: Store, key: EncryptionKey) -> None:
    """Neither contents nor names nor hashes; the list says what is in it to who has the key."""
    made = back_up(repository, store, key=key)
    stored = tree(Path(store.root))
    for entry in made.index.files:
        assert not any(entry.sha256 in name for name in stored)
    assert not any(b"model.onnx" in data or b"other weights" in data for data in stored.values())
    assert back_up(repository, store, key=key).copied_files == 0
    [first, _] = list_backups(store)
    assert (first.index, first.problem) == (None, "encrypted")
    assert list_backups(store, key)[0].index == made.index


def test_a_signature_goes_along_while_it_fits(repository: Path, store: Store, tmp_path: Path) -> None:
    """A signature that is older than the models is left out."""
    new_signing_key(tmp_path / "key")
    sign(repository, read_signing_key(tmp_path / "key"))
    assert back_up(repository, store).index.signature is not None
    assert back_up(repository, store, ["net"]).index.signature is not None
    publish(repository, [rendered(tmp_path / "net", b"second", "net")], keep={"net"})
    assert back_up(repository, store).index.signature is None
    assert back_up(repository, store, ["other"]).index.signature is not None


def test_two_backups_at_once(repository: Path, store: Store) -> None:
    """Into one store: both are there, and each file is whole."""
    made: list[str] = []
    both = threading.Barrier(2)

    def run() -> None:
        both.wait(30)
        made.append(back_up(repository, store).id)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(set(made)) == [backup.id for backup in list_backups(store)]
    assert len(made) == 2
    assert {data for name, data in tree(Path(store.root)).items() if name.startswith("blobs/")} == set(
        tree(repository).values()
    )


def test_a_full_store_keeps_what_it_has(small_disk: Path, repository: Path) -> None:
    """The backup is not there, earlier ones are, and after space was made the same call goes on."""
    store = open_store(str(small_disk / "store"))
    earlier = back_up(repository, store, ["other"])
    with pytest.raises(StoreError, match="the store is full") as caught:
        back_up(repository, store)
    assert "same command again" in caught.value.todo
    assert [backup.id for backup in list_backups(store)] == [earlier.id]
    assert not store.names("unfinished")
