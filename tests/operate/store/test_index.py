"""The index of a backup: what was changed, or would lead elsewhere, is refused."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store import Store, index
from tritonkit.operate.store.contents import StoredFile
from tritonkit.operate.store.index import Index, find, ids, read_index, write_index
from tritonkit.operate.store.keys import EncryptionKey

CREATED = "20260131T235959.000Z"
INDEX = Index(CREATED, {"net": (StoredFile("1/a", "ab" * 32, 3), StoredFile("b", "cd" * 32, 0))}, "{}")


def written(store: Store, facts: Any) -> str:
    """An index with any content, under a name that fits it: somebody else than tritonkit wrote it."""
    data = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
    name = f"{CREATED}-{hashlib.sha256(data).hexdigest()[:32]}"
    store.write(f"backups/{name}.json", [data])
    return name


def test_an_index_comes_back(store: Store, key: EncryptionKey) -> None:
    """Plain and encrypted; the encrypted one shows no name and opens with the key alone."""
    plain, sealed = write_index(store, INDEX, None), write_index(store, INDEX, key)
    assert ids(store) == {plain: False, sealed: True}
    assert read_index(store, plain, None, encrypted=False) == INDEX
    assert read_index(store, sealed, key, encrypted=True) == INDEX
    assert b"net" not in b"".join(store.read(f"backups/{sealed}.sealed"))
    with pytest.raises(UsageError, match="this backup is encrypted"):
        read_index(store, sealed, None, encrypted=True)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_changed_index_is_refused(store: Store, key: EncryptionKey, encrypted: bool) -> None:
    """One byte, anywhere; also where it was given the name that fits, if it is encrypted."""
    used_key = key if encrypted else None
    name = write_index(store, INDEX, used_key)
    [file] = (Path(store.root) / "backups").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="it was changed after it was written"):
        read_index(store, name, used_key, encrypted)
    if encrypted:
        fitting = f"{CREATED}-{hashlib.sha256(data).hexdigest()[:32]}"
        file.rename(file.with_name(f"{fitting}.sealed"))
        with pytest.raises(StoreError, match="it is damaged"):
            read_index(store, fitting, used_key, encrypted)


FILE = ["ab" * 32, 3]


@pytest.mark.parametrize(
    "models",
    [
        {"../net": {"a": FILE}},
        {".staging": {"a": FILE}},
        {"a/b": {"a": FILE}},
        {"": {"a": FILE}},
        {"net\n": {"a": FILE}},
        {"net": {"../a": FILE}},
        {"net": {"/etc/passwd": FILE}},
        {"net": {".staging/x": FILE}},
        {"net": {"a/../../b": FILE}},
        {"net": {"a\x00": FILE}},
        {"net": {"__pycache__/m.pyc": FILE}},
        {"net": {"a": FILE, "a/b": FILE}},
        {"net": {}},
        {"net": []},
        {},
        [],
        {"net": {"a": ["AB" * 32, 3]}},
        {"net": {"a": ["ab" * 32, -1]}},
        {"net": {"a": ["ab" * 32, True]}},
        {"net": {"a": ["ab" * 32, 1.0]}},
        {"net": {"a": ["ab" * 32, 1 << 60]}},
        {"net": {"a": ["../../x", 3]}},
        {"net": {"a": [1, 3]}},
        {"net": {"a": FILE[:1]}},
        {"net": {"a": "x"}},
    ],
    ids=repr,
)
def test_names_and_paths_that_lead_elsewhere_are_refused(store: Store, models: Any) -> None:
    """However well the rest fits."""
    facts = {"format": "tritonkit backup 1", "created": CREATED, "signature": None}
    good = written(store, {**facts, "models": {"net": {"a": FILE}}})
    assert read_index(store, good, None, encrypted=False).size_bytes == 3
    name = written(store, {**facts, "models": models})
    with pytest.raises(StoreError, match="it is not an index of a backup"):
        read_index(store, name, None, encrypted=False)


def test_paths_that_are_all_folders_take_no_memory(store: Store) -> None:
    """A million of slashes: written out as folders they would be half a terabyte."""
    facts = {
        "format": index._FORMAT,
        "created": CREATED,
        "signature": None,
        "models": {"net": {"a/" * 1_000_000: FILE}},
    }
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match="lies outside its folder"):
            read_index(store, written(store, facts), None, encrypted=False)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "facts",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1",
        {},
        {"format": "tritonkit backup 2"},
        {"format": "tritonkit backup 1", "created": 1, "models": {"net": {"a": FILE}}},
        {"format": "tritonkit backup 1", "created": CREATED, "models": {"net": {"a": FILE}}, "signature": 1},
        {"format": "tritonkit backup 1", "created": "20270101T000000.000Z", "models": {"net": {"a": FILE}}},
    ],
    ids=lambda facts: repr(facts)[:40],
)
def test_what_is_no_index_is_refused(store: Store, facts: Any) -> None:
    """Other texts, other formats, another moment than the name's."""
    name = written(store, facts)
    with pytest.raises(StoreError, match=r"not an index of a backup|of another moment"):
        read_index(store, name, None, encrypted=False)


def test_an_index_has_bounds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops when it is too large, and the number of its files is bounded."""
    name = write_index(store, INDEX, None)
    monkeypatch.setattr(index, "_MOST_BYTES", 100)
    with pytest.raises(StoreError, match="larger than 100 bytes"):
        read_index(store, name, None, encrypted=False)
    monkeypatch.undo()
    monkeypatch.setattr(index, "_MOST_FILES", 1)
    with pytest.raises(StoreError, match="more than 1 files"):
        read_index(store, name, None, encrypted=False)
    with pytest.raises(UsageError, match="2 files"):
        index.require_readable(INDEX.models)


def test_a_backup_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    """The latest of those that begin so, or of all; one that is unknown is a mistake."""
    backups = {"20260101T1-aa": False, "20260101T2-bb": False, "20260201T1-cc": True}
    assert find(backups, store, None) == "20260201T1-cc"
    assert find(backups, store, "202601") == "20260101T2-bb"
    assert find(backups, store, "20260101T1-aa") == "20260101T1-aa"
    for prefix in ("2025", "", "0260101"):
        with pytest.raises(UsageError, match="no such backup"):
            find(backups, store, prefix)
    with pytest.raises(UsageError, match="it holds no backups"):
        find({}, store, None)


def test_other_files_beside_them_are_no_backups(store: Store) -> None:
    """A person or a killed copy has put them there."""
    for name in ("notes.txt", "x.json", f"{CREATED}-{'g' * 32}.json", f"{CREATED}-{'a' * 32}.json.tmp"):
        store.write(f"backups/{name}", [b"x"])
    assert ids(store) == {}
