"""Encryption of blobs: AES-256-GCM in chunks, by the STREAM construction.

A chunk's nonce is a random prefix, its number and whether it is the last: chunks that are swapped, left out,
repeated or cut off at the end do not open (Hoang, Reyhanitabar, Rogaway and Vizar, "Online Authenticated-Encryption
and its Nonce-Reuse Misuse-Resistance", CRYPTO 2015). Each blob has a key of its own, derived with HKDF from the
user's key and a random salt, so that no nonce comes twice, regardless of the number of blobs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from tritonkit.errors import StoreError, UsageError
from tritonkit.extras import need_package
from tritonkit.operate.store.keys import REQUIREMENT, EncryptionKey

__all__ = ["CHUNK_BYTES", "decrypt", "encrypt", "encrypted_bytes", "hidden_name"]

CHUNK_BYTES = 1 << 20
"""Bytes of plaintext per chunk; each gets a tag of 16 bytes."""

_MAGIC = b"TKSTORE1"
_ID_BYTES, _SALT_BYTES, _PREFIX_BYTES, _TAG_BYTES = 8, 32, 7, 16
_HEADER_BYTES = len(_MAGIC) + _ID_BYTES + _SALT_BYTES + _PREFIX_BYTES
_MOST_CHUNKS = 1 << 32


def hidden_name(key: EncryptionKey, sha256: str) -> str:
    """A blob's name that does not reveal the hash of its content to those without the key."""
    named = _derive(key.secret, b"", b"tritonkit names 1")
    return hmac.new(named, bytes.fromhex(sha256), hashlib.sha256).hexdigest()


def encrypted_bytes(size_bytes: int) -> int:
    """Size of the output of `encrypt` for a given input."""
    chunks = max(1, -(-size_bytes // CHUNK_BYTES))
    return _HEADER_BYTES + size_bytes + chunks * _TAG_BYTES


def encrypt(parts: Iterable[bytes], key: EncryptionKey, name: str) -> Iterator[bytes]:
    """A header, then the encrypted chunks.

    Args:
        parts: the content, in pieces of any size.
        key: the user's key.
        name: the blob's name; the result can be decrypted only under this name.
    """
    salt, prefix = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_PREFIX_BYTES)
    cipher = _cipher(key, salt)
    yield _MAGIC + _key_id(key) + salt + prefix
    for number, (chunk, last) in enumerate(_chunks(parts, CHUNK_BYTES)):
        yield cipher.encrypt(_nonce(prefix, number, last), chunk, _bound(name))


def decrypt(parts: Iterable[bytes], key: EncryptionKey, name: str, where: str) -> Iterator[bytes]:
    """The plaintext of `encrypt`; a chunk is yielded only after it was authenticated.

    Raises:
        UsageError: the blob was encrypted with another key.
        StoreError: the blob was changed, is incomplete, or has another name. The message calls it `where`.
    """
    invalid = need_package("cryptography.exceptions", REQUIREMENT).InvalidTag
    header, rest = _split(parts)
    start = len(_MAGIC) + _ID_BYTES
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise _damaged(where, "it does not begin as an encrypted blob does")
    if header[len(_MAGIC) : start] != _key_id(key):
        raise UsageError(
            str(key.file),
            found=f"{where} was encrypted with another key",
            wanted=f"the key with the mark {header[len(_MAGIC) : start].hex()}; this one has {_key_id(key).hex()}",
            todo="name the file of that key with --encryption-key",
        )
    cipher = _cipher(key, header[start : start + _SALT_BYTES])
    prefix = header[start + _SALT_BYTES :]
    for number, (chunk, last) in enumerate(_chunks(rest, CHUNK_BYTES + _TAG_BYTES)):
        try:
            yield cipher.decrypt(_nonce(prefix, number, last), chunk, _bound(name))
        except invalid as error:
            raise _damaged(where, f"chunk {number} is not what was encrypted") from error


def _damaged(where: str, found: str) -> StoreError:
    return StoreError(
        where,
        found=f"it is damaged: {found}",
        wanted="the file as a backup wrote it",
        todo="delete it from the store and back up again from an undamaged repository, or restore an earlier backup",
    )


def _split(parts: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The header, which may be cut short, and the parts after it."""
    rest, header = iter(parts), b""
    while len(header) < _HEADER_BYTES and (part := next(rest, b"")):
        header += part

    def after() -> Iterator[bytes]:
        yield header[_HEADER_BYTES:]
        yield from rest

    return header[:_HEADER_BYTES], after()


def _chunks(parts: Iterable[bytes], size_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Chunks of a size, each with whether it is the last. There is at least one; the last may be shorter or empty."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) > size_bytes:
            yield bytes(held[:size_bytes]), False
            del held[:size_bytes]
    yield bytes(held), True


def _nonce(prefix: bytes, number: int, last: bool) -> bytes:
    """12 bytes: 7 of the prefix, 4 of the chunk's number, 1 for the end."""
    if number >= _MOST_CHUNKS:
        raise StoreError("encryption", found="a file above 4 PiB", wanted="a smaller one")
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _bound(name: str) -> bytes:
    return b"tritonkit blob 1 " + name.encode()


def _key_id(key: EncryptionKey) -> bytes:
    """An ID that tells keys apart and reveals nothing about them."""
    return _derive(key.secret, b"", b"tritonkit key id 1")[:_ID_BYTES]


def _cipher(key: EncryptionKey, salt: bytes) -> Any:
    ciphers = need_package("cryptography.hazmat.primitives.ciphers.aead", REQUIREMENT)
    return ciphers.AESGCM(_derive(key.secret, salt, b"tritonkit content 1"))


def _derive(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """32 bytes by HKDF-SHA256 (RFC 5869)."""
    hashes = need_package("cryptography.hazmat.primitives.hashes", REQUIREMENT)
    hkdf = need_package("cryptography.hazmat.primitives.kdf.hkdf", REQUIREMENT)
    derived: bytes = hkdf.HKDF(hashes.SHA256(), 32, salt or None, purpose).derive(secret)
    return derived
