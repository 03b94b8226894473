"""Encryption in chunks: what was changed, moved, cut or repeated does not open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store.encryption import CHUNK_BYTES, decrypt, encrypt, encrypted_bytes, hidden_name
from tritonkit.operate.store.keys import EncryptionKey, new_encryption_key, read_encryption_key

KEY = EncryptionKey(Path("key"), bytes(range(32)))
HEADER, SEALED = 55, CHUNK_BYTES + 16


def opened(data: bytes, name: str = "blob", key: EncryptionKey = KEY) -> bytes:
    """The decrypted content."""
    return b"".join(decrypt([data], key, name, "place"))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
def test_what_was_encrypted_opens(size: int) -> None:
    """At the borders of chunks; the size is known beforehand."""
    data = bytes([7]) * size
    made = b"".join(encrypt([data], KEY, "blob"))
    assert len(made) == encrypted_bytes(size)
    assert opened(made) == data
    assert size < 100 or data[:100] not in made


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.integers(1, 200))
def test_pieces_of_any_size_are_the_same(pieces: list[bytes], cut: int) -> None:
    """However a file is read and a store gives it back."""
    made = b"".join(encrypt(pieces, KEY, "blob"))
    parts = [made[at : at + cut] for at in range(0, len(made), cut)]
    assert b"".join(decrypt(parts, KEY, "blob", "place")) == b"".join(pieces)


def test_equal_files_look_different() -> None:
    """A salt of its own each time; names are equal, and do not tell the hash."""
    first, second = (b"".join(encrypt([b"same"], KEY, "blob")) for _ in range(2))
    assert first != second
    assert hidden_name(KEY, "ab" * 32) == hidden_name(KEY, "ab" * 32) != "ab" * 32
    assert hidden_name(EncryptionKey(Path("b"), bytes(32)), "ab" * 32) != hidden_name(KEY, "ab" * 32)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of a chunk": lambda data: data[:2000] + bytes([data[2000] ^ 1]) + data[2001:],
    "a bit of the last tag": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "a bit of the salt": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "a bit of the prefix": lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
    "the end cut off at a chunk": lambda data: data[: HEADER + 2 * SEALED],
    "the end cut off in a chunk": lambda data: data[:-5],
    "only the header": lambda data: data[:HEADER],
    "half a header": lambda data: data[:30],
    "nothing": lambda data: b"",
    "another beginning": lambda data: b"X" + data[1:],
    "more at the end": lambda data: data + b"x",
    "two chunks swapped": lambda data: (
        data[:HEADER]
        + data[HEADER + SEALED : HEADER + 2 * SEALED]
        + data[HEADER : HEADER + SEALED]
        + data[HEADER + 2 * SEALED :]
    ),
    "a chunk left out": lambda data: data[:HEADER] + data[HEADER + SEALED :],
    "a chunk twice": lambda data: data[: HEADER + SEALED] + data[HEADER:],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_does_not_open(change: str) -> None:
    """Whatever was done to it: one error that names the place."""
    data = b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"c"
    made = CHANGES[change](b"".join(encrypt([data], KEY, "blob")))
    with pytest.raises(StoreError, match="place: it is damaged"):
        opened(made)


def test_a_blob_opens_under_its_own_name_only() -> None:
    """Two blobs of one key cannot be exchanged for each other."""
    made = b"".join(encrypt([b"data"], KEY, "blob"))
    with pytest.raises(StoreError, match="it is damaged"):
        opened(made, "other")


def test_another_key_is_a_mistake_of_its_own(tmp_path: Path) -> None:
    """It is told apart from damage, and names the file of the key."""
    made = b"".join(encrypt([b"data"], KEY, "blob"))
    new_encryption_key(tmp_path / "other")
    with pytest.raises(UsageError, match="encrypted with another key") as caught:
        opened(made, key=read_encryption_key(tmp_path / "other"))
    assert caught.value.where == str(tmp_path / "other")


def test_memory_is_bounded() -> None:
    """Each chunk is yielded before the next is read."""
    read = 0

    def parts() -> Iterator[bytes]:
        nonlocal read
        for _ in range(20):
            read += 1
            yield bytes(CHUNK_BYTES // 2)

    given_out = encrypt(parts(), KEY, "blob")
    next(given_out)
    next(given_out)
    assert read <= 3
