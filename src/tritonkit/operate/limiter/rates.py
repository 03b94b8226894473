"""The rates of callers; those of keys come from `keys.json`, which is read again when it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import UsageError
from tritonkit.operate.gateway.spec import Jwt
from tritonkit.operate.keys import FILE, read_keys

__all__ = ["Rate", "Rates"]


_SUBJECT = "jwt:"
"""Prefix of the names of tokens' subjects; no key's name has it."""


@dataclass(frozen=True)
class Rate:
    """Requests that one caller may send through all gateways together.

    Args:
        bucket: the name of its token bucket in Redis, a hash that no other caller has.
        per_s: tokens that are added in a second; a request takes one.
        burst: tokens that the bucket holds.
    """

    bucket: str
    per_s: float
    burst: int


class Rates:
    """The rates of a gateway's keys.

    Args:
        folder: the gateway's folder.
        jwt: the settings of its tokens, whose subjects may have a rate.
        log: called with a message about each change of the key file.

    Raises:
        UsageError: the gateway's keys cannot be read.
    """

    def __init__(self, folder: Path, jwt: Jwt | None = None, log: Callable[[str], object] = lambda text: None) -> None:
        self._file, self._jwt, self._said = folder / FILE, jwt, log
        self._seen, self._told = self._changed(), ""
        self._rates = self._read()

    def of(self, caller: str) -> Rate | None:
        """The rate of a key by its name, or of a token's subject; None if it has no rate or is unknown."""
        if caller.startswith(_SUBJECT) and self._jwt is not None and self._jwt.rate_per_s:
            bucket = hashlib.sha256(f"{self._jwt.issuer} {caller}".encode()).hexdigest()[:32]
            return Rate(bucket, self._jwt.rate_per_s, self._jwt.tokens)
        return self._rates.get(caller)

    def refresh(self) -> None:
        """Read the file again if it has changed; a file that cannot be read leaves the rates unchanged."""
        if (changed := self._changed()) == self._seen:
            return
        try:
            self._rates = self._read()
        except UsageError as error:
            text = f"the rates are left as they were: {error.where}: {error.found}"
            if text != self._told:
                self._said(text)
            self._told = text
            return
        self._seen, self._told = changed, ""
        self._said("rates were read again")

    def _read(self) -> dict[str, Rate]:
        return {
            key.name: Rate(key.sha256[:32], key.rate_per_s, key.burst)
            for key in read_keys(self._file)
            if key.rate_per_s is not None
        }

    def _changed(self) -> int:
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0
