"""API keys of a gateway: made once, shown once, kept only as SHA-256.

A key has 256 random bits, so that a plain hash of it cannot be turned around and needs no salt (NIST SP 800-63B,
5.1.2.2, asks for salt and a slow hash below 112 bits). The file names each key, the models it may use
and its rate; a reader of the file learns no key.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonkit.disk import sync, unwritable
from tritonkit.errors import TritonkitError, UsageError
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.publish.integrity import open_file
from tritonkit.serve.core.keys import write_private

__all__ = ["EVERY", "FILE", "PREFIX", "ApiKey", "add_key", "hash_of", "read_keys", "revoke_key"]

FILE = "keys.json"
PREFIX = "tk_"
"""Prefix of each key: identifies leaked keys, and tells keys from JSON Web Tokens."""
EVERY = "*"
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9._~-]{1,128}")


@dataclass(frozen=True)
class ApiKey:
    """A key's record; the key itself is not kept.

    Args:
        name: the owner's name, which the audit log shows.
        sha256: the key's hash, 64 hexadecimal digits.
        models: the models that it may use; `*` means all.
        rate_per_s: requests a second that it may send; None: no limit of its own.
        burst: requests that may come in one burst beyond the rate.
        created: time of its creation, in seconds since 1970.
    """

    name: str
    sha256: str
    models: tuple[str, ...] = (EVERY,)
    rate_per_s: float | None = None
    burst: int = 1
    created: float = 0.0

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> ApiKey:
        """The inverse of `dataclasses.asdict`.

        Raises:
            ValueError, TypeError, KeyError: the facts are not those of a key.
        """
        if not isinstance(facts["models"], list):
            raise TypeError("models is no list")
        key = cls(**{**facts, "models": tuple(facts["models"])})
        _check(key)
        if not re.fullmatch(r"[0-9a-f]{64}", key.sha256):
            raise ValueError(f"key {key.name}: sha256 is not a SHA-256 hash")
        return key


def hash_of(key: str) -> str:
    """The hash by which a key is kept."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(file: Path) -> list[ApiKey]:
    """The keys of a file; none if it does not exist.

    Raises:
        UsageError: the file cannot be read, is not a key file, or others than its owner can write it.
    """
    try:
        with open_file(file) as opened:
            status = os.fstat(opened.fileno())
            if status.st_mode & 0o022 or status.st_uid not in (0, os.getuid()):
                raise UsageError(
                    str(file),
                    found="others than you can write it, and so give themselves keys",
                    wanted="a file of yours",
                    todo=f"check its content, then: chown $USER {file}; chmod go-w {file}",
                )
            facts = json.load(opened)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from None
    try:
        if facts["version"] != _VERSION:
            raise ValueError(f"version {facts['version']}")
        return _distinct([ApiKey.from_dict(entry) for entry in facts["keys"]])
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(file, f"no keys of this version: {error}") from None


def add_key(
    file: Path, name: str, models: Sequence[str] = (EVERY,), rate_per_s: float | None = None, burst: int | None = None
) -> tuple[ApiKey, str]:
    """Make a key; the key itself is only in the returned value.

    Args:
        burst: requests that may come in one burst; None: as many as the rate gives in a tenth of a second.

    Raises:
        UsageError: the name is taken or not valid, or a model's name, the rate or the burst is not valid.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    some = max(1, round((rate_per_s or 0) / 10)) if burst is None else burst
    made = ApiKey(name, hash_of(key), tuple(models), rate_per_s, some, round(time.time(), 3))
    try:
        _check(made)
    except ValueError as error:
        problem, _, expected = str(error).partition("; wanted ")
        raise UsageError("keys add", found=problem, wanted=expected) from None
    with _changing(file) as keys:
        if any(key.name == name for key in keys):
            raise UsageError(
                f"key {name!r}",
                found="there is one of that name",
                wanted="another name",
                todo=f"or: tritonkit keys revoke {name}",
            )
        keys.append(made)
    return made, key


def revoke_key(file: Path, name: str) -> ApiKey:
    """Remove a key from the file.

    Raises:
        UsageError: there is no key of that name.
    """
    with _changing(file) as keys:
        for key in keys:
            if key.name == name:
                keys.remove(key)
                return key
        names = [key.name for key in keys]
        raise UsageError(f"key {name!r}", found=f"{file} has none of that name", wanted=nearest(name, names))


def _distinct(keys: list[ApiKey]) -> list[ApiKey]:
    for what in ("name", "sha256"):
        value, count = Counter(getattr(key, what) for key in keys).most_common(1)[0] if keys else ("", 1)
        if count > 1:
            raise ValueError(f"two keys of the {what} {value}")
    return keys


def _check(key: ApiKey) -> None:
    if not isinstance(key.name, str) or not _NAME.fullmatch(key.name):
        raise ValueError(f"the name {key.name!r}; wanted 1 to 64 letters, digits and . _ @ -, a letter or digit first")
    for model in key.models:
        if not isinstance(model, str) or (model != EVERY and not _MODEL.fullmatch(model)):
            raise ValueError(f"the model {model!r}; wanted a model's name, or * for all")
    if not key.models:
        raise ValueError("no model; wanted one or more, or * for all")
    if key.rate_per_s is not None and not 0.01 <= key.rate_per_s <= 1e6:
        raise ValueError(f"a rate of {key.rate_per_s:g}/s; wanted 0.01 to 1000000")
    if not isinstance(key.burst, int) or not 1 <= key.burst <= 1_000_000:
        raise ValueError(f"a burst of {key.burst}; wanted 1 to 1000000")


@contextlib.contextmanager
def _changing(file: Path) -> Iterator[list[ApiKey]]:
    """The keys, written if the block ends without an error; one process at a time.

    Raises:
        UsageError: the keys cannot be written; the file is unchanged.
    """
    with _locked(file.parent):
        keys = read_keys(file)
        yield keys
        facts = {"version": _VERSION, "keys": [asdict(key) for key in keys]}
        try:
            write_private(file, json.dumps(facts, indent=1) + "\n")
            sync(file.parent)
        except OSError as error:
            raise _unwritten(file, error) from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise unwritable(folder, error, UsageError) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unwritten(file: Path, error: OSError) -> TritonkitError:
    made = unwritable(file, error, UsageError)
    made.wanted = "the same command once it can be written: the keys are those from before"
    return made


def _unreadable(file: Path, found: str) -> UsageError:
    return UsageError(
        str(file),
        found=f"it cannot be read: {found}",
        wanted="a file that `tritonkit keys add` wrote",
        todo="put back a copy, or move it away and make the keys again: tritonkit keys add",
    )
