"""Old backups go with what only they hold, and never with what another one needs, also one that is being made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.operate.store.trees import tree
from tests.repository.publish.test_publish import rendered
from tests.waiting import eventually
from tritonkit.errors import StoreBusy, StoreError, UsageError
from tritonkit.operate.store import Store, back_up, list_backups, prune, restore
from tritonkit.operate.store.keys import EncryptionKey, new_encryption_key, read_encryption_key
from tritonkit.operate.store.marks import BACKING_UP, REMOVING, StoreMark
from tritonkit.repository.publish.publish import publish


@pytest.fixture
def states(repository: Path, tmp_path: Path) -> Iterator[str]:
    """The repository in one state after the other, each with weights that no other has."""

    def step(number: int) -> str:
        weights = f"weights {number}".encode() * 1000
        publish(repository, [rendered(tmp_path / f"net{number}", weights, "net")], keep=set())
        return f"state {number}"

    return map(step, range(2, 99))


def blob_names(store: Store) -> set[str]:
    """Names of the blobs in the store."""
    return {name for name in tree(Path(store.root)) if not name.startswith("backups/")}


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_latest_are_left_whole(
    repository: Path, store: Store, states: Iterator[str], tmp_path: Path, key: EncryptionKey, encrypted: bool
) -> None:
    """Each of them can be restored; what the others alone held is gone, and nothing is left to remove."""
    used = key if encrypted else None
    made = [(back_up(repository, store, key=used).id, tree(repository))]
    while len(made) < 4:
        next(states)
        made.append((back_up(repository, store, key=used).id, tree(repository)))
    planned = prune(store, 2, key=used, dry_run=True)
    before = blob_names(store)
    assert planned.backups == tuple(name for name, _ in made[:2])
    assert (planned.files, len(list_backups(store))) == (planned.files, 4)
    done = prune(store, 2, key=used)
    assert done == planned
    assert len(before) - len(blob_names(store)) == done.files > 0
    assert [backup.id for backup in list_backups(store)] == [name for name, _ in made[2:]]
    for name, files in made[2:]:
        restore(store, tmp_path / name, as_of=name, key=used)
        assert tree(tmp_path / name) == files
    again = prune(store, 2, key=used)
    assert (again.backups, again.files) == ((), 0)


def test_plain_and_encrypted_backups_beside_each_other(
    repository: Path, store: Store, states: Iterator[str], tmp_path: Path, key: EncryptionKey
) -> None:
    """Backups that are left must be readable: without the key, or with another, nothing is removed."""
    back_up(repository, store)
    sealed = back_up(repository, store, key=key).id
    before = tree(Path(store.root))
    new_encryption_key(tmp_path / "other-key")
    for wrong in (None, read_encryption_key(tmp_path / "other-key")):
        with pytest.raises(UsageError):
            prune(store, 1, key=wrong)
    assert tree(Path(store.root)) == before
    prune(store, 1, key=key)
    assert {name.split("/")[0] for name in tree(Path(store.root))} == {"backups", "sealed"}
    restore(store, tmp_path / "again", key=key)
    next(states)
    back_up(repository, store)
    assert prune(store, 1).backups == (sealed,)
    assert {name.split("/")[0] for name in tree(Path(store.root))} == {"backups", "blobs"}


def test_a_backup_that_cannot_be_read_keeps_everything(repository: Path, store: Store) -> None:
    """Nobody knows what it is made of."""
    back_up(repository, store)
    made = back_up(repository, store)
    file = Path(store.root) / "backups" / f"{made.id}.json"
    file.write_text(file.read_text() + " ")
    before = tree(Path(store.root))
    with pytest.raises(StoreError, match="changed after it was written"):
        prune(store, 1)
    assert tree(Path(store.root)) == before


def test_what_is_no_blob_stays(repository: Path, store: Store) -> None:
    """Whatever else somebody has put there."""
    back_up(repository, store)
    for name in ("blobs/README", "blobs/ab/notes.txt", "other/ab/" + "0" * 64):
        file = Path(store.root) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    assert prune(store, 1).files == 0
    assert (Path(store.root) / "blobs/README").read_text() == "mine"


def test_while_a_backup_is_made_nothing_is_removed(repository: Path, store: Store, states: Iterator[str]) -> None:
    """It may be about to name a file that no backup names yet: from its first look on."""
    back_up(repository, store)
    next(states)
    tried: list[str] = []

    def try_it(done: int, total: int) -> None:
        with pytest.raises(StoreBusy):
            prune(store, 1)
        tried.append("busy")

    back_up(repository, store, progress=try_it)
    assert tried
    assert blob_names(store) == {name for name in blob_names(store) if name.startswith("blobs/")}
    assert len(prune(store, 1).backups) == 1


def test_a_backup_waits_until_files_are_removed(repository: Path, store: Store) -> None:
    """Files that it finds there could be gone a moment later."""
    made: list[Any] = []
    with StoreMark(store, REMOVING):
        thread = threading.Thread(target=lambda: made.append(back_up(repository, store)))
        thread.start()
        eventually(lambda: store.names(BACKING_UP), "a backup's mark")
        assert store.names("blobs") == []
    thread.join()
    assert [backup.id for backup in list_backups(store)] == [made[0].id]


def test_a_mark_of_a_process_that_is_gone_counts_no_more(repository: Path, store: Store, states: Iterator[str]) -> None:
    """After an hour; a backup that had only slept finds its mark gone, and copies again what it lacks."""
    back_up(repository, store)
    asleep = StoreMark(store, BACKING_UP, clock=lambda: 0.0).__enter__()
    assert asleep.is_there()
    next(states)
    lost: list[int] = []

    def remove_meanwhile(done: int, total: int) -> None:
        if done == total and not lost:
            for name in store.names(BACKING_UP):
                store.write(f"{BACKING_UP}/{name}", [b"0"])
            prune(store, 1)
            lost.append(len(blob_names(store)))

    made = back_up(repository, store, progress=remove_meanwhile)
    assert not asleep.is_there()
    assert lost
    restore(store, repository.parent / "again", as_of=made.id)
    assert tree(repository.parent / "again") == tree(repository)


@pytest.mark.parametrize("text", [b"9999999999.0", b"inf", b"nan"])
def test_no_mark_lasts(store: Store, text: bytes) -> None:
    """One of a clock that was ahead, or that somebody wrote: backups would wait, and nothing would be removed."""
    store.write(f"{BACKING_UP}/somebody", [text])
    with StoreMark(store, REMOVING) as mark:
        mark.wait_until_none(BACKING_UP, 0.0)
    assert store.names(BACKING_UP) == []


def test_a_backup_of_the_future_removes_no_later_one(
    repository: Path, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A clock that had jumped ahead dated it: prune, backup and restore say so."""
    with monkeypatch.context() as patched:
        patched.setattr("tritonkit.operate.store.backup._now", lambda: "20990101T000000.000Z")
        ahead = back_up(repository, store).id
    url = str(tmp_path / "store")
    done = tritonkit("backup", url, "--repository", str(repository))
    assert f"{ahead} is dated in the future" in done.stderr
    with pytest.raises(StoreError, match="dated in the future") as caught:
        prune(store, 1)
    assert f"backups/{ahead}" in caught.value.todo
    assert len(list_backups(store)) == 2
    done = tritonkit("restore", url, "--repository", str(tmp_path / "new"))
    assert done.returncode == 0
    assert "is dated in the future" in done.stderr


def test_removing_that_slept_stops(store: Store) -> None:
    """A backup may have taken it for dead, and rely on what it was about to remove."""
    now = [0.0]
    with StoreMark(store, REMOVING, clock=lambda: now[0]) as mark:
        mark.renew()
        now[0] = 3000.0
        with pytest.raises(StoreBusy, match="nothing was done for 3000 s"):
            mark.renew()


def test_by_command(repository: Path, store: Store, states: Iterator[str]) -> None:
    """After a backup, or alone; IDs are printed, and none is no number of backups."""
    at = ("--repository", str(repository))
    first = tritonkit("backup", store.url, *at).stdout.strip()
    next(states)
    done = tritonkit("backup", store.url, *at, "--keep", "1")
    assert "1 backups and" in done.stderr
    assert first not in {backup.id for backup in list_backups(store)}
    next(states)
    second = done.stdout.strip()
    tritonkit("backup", store.url, *at)
    assert tritonkit("prune", store.url, "--keep", "1", "--dry-run").stdout.strip() == second
    with StoreMark(store, BACKING_UP):
        assert "other work is under way" in failed(tritonkit("prune", store.url, "--keep", "1"), 5)
        done = tritonkit("backup", store.url, *at, "--keep", "1")
        assert done.returncode == 0
        assert "nothing was removed" in done.stderr
    failed(tritonkit("prune", store.url, "--keep", "0"), 2)
