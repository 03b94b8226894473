"""Restoring: the bytes that were backed up, all of them or none, and nothing that was not checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.operate.store.test_index import written
from tests.operate.store.trees import tree
from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import rendered
from tritonkit.errors import PublishError, StoreError, UsageError
from tritonkit.operate.store import Store, back_up, list_backups, open_store, restore, sign
from tritonkit.operate.store.index import remove_index, write_index
from tritonkit.operate.store.keys import (
    EncryptionKey,
    new_encryption_key,
    new_signing_key,
    read_encryption_key,
    read_public_key,
    read_signing_key,
)
from tritonkit.repository.publish import verify
from tritonkit.repository.publish.publish import publish


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_backed_up_comes_back(
    repository: Path, memory: Store, tmp_path: Path, key: EncryptionKey, encrypted: bool
) -> None:
    """Every byte, in a new folder that its owner alone can read; progress ends at the whole."""
    used_key = key if encrypted else None
    made = back_up(repository, memory, key=used_key)
    reports: list[tuple[int, int]] = []
    out = tmp_path / "new" / "repository"
    done = restore(memory, out, key=used_key, progress=lambda *figures: reports.append(figures))
    assert (done.id, done.others) == (made.id, ())
    assert done.models == {"net": "restored", "other": "restored"}
    assert tree(out) == tree(repository)
    assert verify(out) == []
    assert out.stat().st_mode & 0o077 == 0
    assert reports[-1] == (made.index.size_bytes, made.index.size_bytes)
    assert [path.name for path in out.parent.iterdir()] == ["repository"]


def test_compiled_python_does_not_outlive_a_restore(repository: Path, store: Store) -> None:
    """It is not backed up; the model next to it counts as changed, and is put in place without it."""
    cache = repository / "net" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_text("x")
    back_up(repository, store)
    assert restore(store, repository).models == {"net": "restored", "other": "unchanged"}
    assert not cache.exists()


def test_an_older_signed_backup_does_not_pass_for_a_whole_id(repository: Path, store: Store, tmp_path: Path) -> None:
    """An attacker who can write to the store can remove the latest, or give an older one a new date: the signature
    still fits, the ID does not."""
    new_signing_key(tmp_path / "key")
    key, public = read_signing_key(tmp_path / "key"), read_public_key(tmp_path / "key.pub")
    sign(repository, key)
    older = back_up(repository, store)
    publish(repository, [rendered(tmp_path / "net", b"second", "net")], keep={"net"})
    sign(repository, key)
    latest = back_up(repository, store)
    remove_index(store, latest.id, encrypted=False)
    replayed = write_index(store, replace(older.index, created=latest.index.created), None)
    assert replayed[:20] == latest.id[:20]
    with pytest.raises(UsageError, match="no such backup"):
        restore(store, tmp_path / "new", as_of=latest.id, public_key=public)
    assert restore(store, tmp_path / "new", public_key=public).id == replayed


def test_a_plain_backup_does_not_pass_for_an_encrypted_one(
    repository: Path, store: Store, tmp_path: Path, key: EncryptionKey
) -> None:
    """An attacker who can write to the store but has no key could have put it there."""
    sealed = back_up(repository, store, key=key)
    back_up(repository, store)
    with pytest.raises(StoreError, match="it is not encrypted") as caught:
        restore(store, tmp_path / "new", key=key)
    assert "--as-of" in caught.value.todo
    assert not (tmp_path / "new").exists()
    restore(store, tmp_path / "new", key=key, as_of=sealed.id)


def test_an_earlier_state_comes_back(repository: Path, store: Store, tmp_path: Path) -> None:
    """With versions that came later gone; what is the same is not touched, what is not in it stays."""
    before = tree(repository)
    first = back_up(repository, store)
    publish(repository, [rendered(tmp_path / "net", b"second", "net")], keep={"net"})
    back_up(repository, store)
    publish(repository, [rendered(tmp_path / "third", b"third", "third")], keep={"net"})
    inode = (repository / "other").stat().st_ino
    done = restore(store, repository, as_of=first.id[:24])
    assert done.models == {"net": "restored", "other": "unchanged"}
    assert done.others == ("third",)
    assert (repository / "other").stat().st_ino == inode
    shutil.rmtree(repository / "third")
    assert tree(repository) == before
    assert restore(store, repository, ["net"]).models == {"net": "restored"}
    assert (repository / "net" / "2" / "model.onnx").read_bytes() == b"second"


def test_a_damaged_repository_is_mended(repository: Path, store: Store) -> None:
    """A file of the same size, one too many, one too few, and a model that is gone."""
    before = tree(repository)
    back_up(repository, store)
    flip(repository / "net" / "1" / "model.onnx")
    (repository / "net" / "1" / "added.py").touch()
    shutil.rmtree(repository / "other")
    assert set(restore(store, repository).models.values()) == {"restored"}
    assert tree(repository) == before


def spoil(store: Store, change: Callable[[Path], object]) -> None:
    """Do something to the largest file of a store, which is that of the weights of `net`."""
    files = [path for path in Path(store.root).rglob("*") if path.is_file()]
    change(max(files, key=lambda path: path.stat().st_size))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (flip, "it is damaged"),
    "cut short": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "it is damaged"),
    "longer": (lambda file: file.write_bytes(file.read_bytes() + b"x"), "it is damaged"),
    "missing": (lambda file: file.unlink(), "missing from the store"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "it is a folder, a pipe"),
    "a pipe": (lambda file: (file.unlink(), os.mkfifo(file)), "it is a folder, a pipe"),
}


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_in_the_store_changes_nothing(
    repository: Path, store: Store, key: EncryptionKey, kind: str, encrypted: bool
) -> None:
    """The error names the file in the store; the repository is as it was, and nothing is left next to it."""
    used_key = key if encrypted else None
    back_up(repository, store, key=used_key)
    do, problem = DAMAGE[kind]
    spoil(store, do)
    flip(repository / "net" / "1" / "model.onnx")
    before = tree(repository.parent)
    with pytest.raises(StoreError, match=problem) as caught:
        restore(store, repository, key=used_key)
    assert caught.value.where.startswith(store.url)
    assert caught.value.todo
    assert tree(repository.parent) == before
    with pytest.raises(StoreError):
        restore(store, repository.parent / "new", key=used_key)
    assert not (repository.parent / "new").exists()


def test_an_interrupted_restore_changes_nothing(repository: Path, store: Store) -> None:
    """Nothing is half there, and the next one does all of it."""
    whole = tree(repository)
    back_up(repository, store)
    for model in ("net", "other"):
        flip(repository / model / "1" / "model.onnx")
    before = tree(repository.parent)

    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(store, repository, progress=stop)
    assert tree(repository.parent) == before
    restore(store, repository)
    assert tree(repository) == whole


def test_the_key_must_be_the_right_one(repository: Path, store: Store, key: EncryptionKey, tmp_path: Path) -> None:
    """Another one, or none, is a mistake of the command line."""
    back_up(repository, store, key=key)
    new_encryption_key(tmp_path / "other-key")
    out = tmp_path / "new"
    with pytest.raises(UsageError, match="encrypted with another key"):
        restore(store, out, key=read_encryption_key(tmp_path / "other-key"))
    with pytest.raises(UsageError, match="this backup is encrypted"):
        restore(store, out)
    assert not out.exists()


def test_a_signature_is_wanted_before_anything_is_copied(repository: Path, store: Store, tmp_path: Path) -> None:
    """Not signed, signed by another, changed in the store afterwards: refused; else it is put into the repository."""
    new_signing_key(tmp_path / "key")
    new_signing_key(tmp_path / "other-key")
    public, other = (read_public_key(tmp_path / name) for name in ("key.pub", "other-key.pub"))
    out = tmp_path / "new"
    unsigned = back_up(repository, store)
    with pytest.raises(StoreError, match="there is no signature"):
        restore(store, out, public_key=public)
    sign(repository, read_signing_key(tmp_path / "key"))
    signed = back_up(repository, store)
    with pytest.raises(StoreError, match="another key"):
        restore(store, out, public_key=other)
    with pytest.raises(StoreError, match="there is no signature"):
        restore(store, out, public_key=public, as_of=unsigned.id)
    restore(store, out, public_key=public, as_of=signed.id)
    assert tree(out) == tree(repository)


def test_who_may_write_the_store_cannot_pass_for_the_signer(repository: Path, store: Store, tmp_path: Path) -> None:
    """An index with another hash, a model less or more, and all names that fit: refused with the public key."""
    new_signing_key(tmp_path / "key")
    public = read_public_key(tmp_path / "key.pub")
    sign(repository, read_signing_key(tmp_path / "key"))
    made = back_up(repository, store)
    whole = {
        name: {entry.path: [entry.sha256, entry.size_bytes] for entry in entries}
        for name, entries in made.index.models.items()
    }
    facts = {"format": "tritonkit backup 1", "created": "20260131T235959.000Z", "signature": made.index.signature}
    changed = {**whole, "net": {**whole["net"], "1/model.onnx": whole["other"]["1/model.onnx"]}}
    for models, problem in (
        (changed, "sha256"),
        ({"net": whole["net"]}, "the model is missing"),
        ({**whole, "third": whole["net"]}, "was added"),
    ):
        name = written(store, {**facts, "models": models})
        with pytest.raises(StoreError, match=problem):
            restore(store, tmp_path / "new", as_of=name, public_key=public)
    assert not (tmp_path / "new").exists()
    name = written(store, {**facts, "models": {"net": whole["net"]}})
    assert restore(store, tmp_path / "new", ["net"], as_of=name, public_key=public).models == {"net": "restored"}


def test_what_a_person_wrote_is_replaced_only_by_name(repository: Path, store: Store) -> None:
    """A model that tritonkit did not write, and is not as in the backup."""
    back_up(repository, store)
    shutil.rmtree(repository / "net")
    (repository / "net").mkdir()
    (repository / "net" / "config.pbtxt").write_text('name: "net"\n')
    before = tree(repository)
    with pytest.raises(PublishError, match="tritonkit did not write it"):
        restore(store, repository)
    assert tree(repository) == before
    assert restore(store, repository, ["net"]).models == {"net": "restored"}


def test_models_of_others_are_copied_too(repository: Path, store: Store, tmp_path: Path) -> None:
    """A backup is of the whole repository."""
    (repository / "mine" / "1").mkdir(parents=True)
    (repository / "mine" / "config.pbtxt").write_text('name: "mine"\n')
    (repository / "mine" / "1" / "model.py").write_text("# by hand\n")
    back_up(repository, store)
    restore(store, tmp_path / "new")
    assert tree(tmp_path / "new") == tree(repository)


def test_unknown_backups_and_models(repository: Path, store: Store, tmp_path: Path) -> None:
    """A mistake of the command line, with what there is."""
    with pytest.raises(UsageError, match="it holds no backups"):
        restore(store, tmp_path / "new")
    back_up(repository, store)
    with pytest.raises(UsageError, match="no such backup") as caught:
        restore(store, tmp_path / "new", as_of="1999")
    assert list_backups(store)[0].id in caught.value.wanted
    with pytest.raises(UsageError, match="does not hold it") as caught:
        restore(store, tmp_path / "new", ["nett"])
    assert caught.value.wanted == "'net'"


def test_a_target_that_cannot_be_written(repository: Path, store: Store, tmp_path: Path) -> None:
    """A file in the way of the repository, or of a model."""
    back_up(repository, store)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(PublishError, match=r"cannot be (written|made)"):
            restore(store, out)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "net").write_text("mine")
    with pytest.raises(PublishError):
        restore(store, tmp_path / "new")
    assert tree(tmp_path / "new") == {"net": b"mine"}


@pytest.mark.parametrize("mounted", [True, False], ids=["the mount", "a folder on it"])
def test_a_full_disk_changes_nothing(
    small_disk: Path, repository: Path, store: Store, tmp_path: Path, mounted: bool
) -> None:
    """It is known before anything is written."""
    out = small_disk if mounted else small_disk / "repository"
    publish(out, [rendered(tmp_path / "net", b"small", "net")])
    back_up(repository, store)
    before = tree(small_disk)
    with pytest.raises(PublishError, match="the disk is full"):
        restore(store, out)
    assert tree(small_disk) == before


def test_a_mounted_repository_comes_back(small_disk: Path, store: Store, tmp_path: Path) -> None:
    """Models are staged inside the first of them: its version is replaced too, and later ones go."""
    publish(small_disk, [rendered(tmp_path / n, b"one", n) for n in ("alpha", "beta")])
    before = tree(small_disk)
    back_up(small_disk, store)
    publish(small_disk, [rendered(tmp_path / n, b"two", n) for n in ("alpha", "beta")])
    flip(small_disk / "alpha" / "1" / "model.onnx")
    restore(store, small_disk)
    assert tree(small_disk) == before


def test_the_same_store_by_another_address(repository: Path, store: Store, tmp_path: Path) -> None:
    """A moved store is the same store: nothing in it names its place."""
    back_up(repository, store)
    Path(store.root).rename(tmp_path / "moved")
    restore(open_store(f"file://{tmp_path / 'moved'}"), tmp_path / "new")
    assert tree(tmp_path / "new") == tree(repository)
