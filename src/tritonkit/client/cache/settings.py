"""The settings of a cache: how much, for how long, and whether other processes share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tritonkit.errors import UsageError

__all__ = ["Cache"]

_SCHEMES = ("redis", "rediss", "unix")
_LONGEST_S = 31 * 24 * 3600.0


@dataclass(frozen=True)
class Cache:
    """Cache answers: equal inputs to the same model version get the cached answer.

    An answer is at most `ttl_s` old, or `redis_ttl_s + ttl_s` where Redis is used: a copy fetched
    from Redis is cached here for `ttl_s`.

    Args:
        l1: answers in this process at most; the least recently used are dropped first.
        ttl_s: seconds an answer is used from this process's memory.
        redis: `redis://[:password@]host[:port][/db]`, `rediss://...` (TLS) or `unix:///path`, None for
            this process alone. Its password is in no message and not in `repr`.
        redis_ttl_s: seconds an answer stays in Redis.
        l1_bytes: bytes all answers in this process may take; a small answer counts as `l1_bytes / l1`.
        namespace: names the servers whose answers are shared in Redis. Give each deployment its own
            if one Redis serves several: version 1 of a model may not be the same model in both.
        redis_timeout_s: seconds to wait for Redis to connect, and to answer; then the server is called.

    Raises:
        UsageError: a value is out of range, or the address is not a Redis URL.
    """

    l1: int = 10_000
    ttl_s: float = 5.0
    redis: str | None = field(default=None, repr=False)
    redis_ttl_s: float = 30.0
    l1_bytes: int = 256 * 2**20
    namespace: str = ""
    redis_timeout_s: float = 0.05

    def __post_init__(self) -> None:
        _check_count("l1", self.l1)
        _check_count("l1_bytes", self.l1_bytes)
        if self.l1_bytes < self.l1:
            raise _wrong("l1_bytes", self.l1_bytes, f"at least l1, {self.l1}")
        _check_seconds("ttl_s", self.ttl_s, _LONGEST_S)
        # Redis counts milliseconds, and refuses 0 of them.
        _check_seconds("redis_ttl_s", self.redis_ttl_s, _LONGEST_S, least=0.001)
        _check_seconds("redis_timeout_s", self.redis_timeout_s, 10.0)
        if len(self.namespace) > 100 or not self.namespace.isprintable():
            raise _wrong(
                "namespace", repr(self.namespace[:110]), "at most 100 printable characters"
            )
        if self.redis is not None:
            _check_url(self.redis)


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value, "a whole number above 0")


def _check_seconds(name: str, value: float, most: float, least: float = 0.0) -> None:
    # Written so that NaN, which compares with nothing, is refused too.
    if not (least <= value <= most and value > 0):
        raise _wrong(name, value, f"seconds above 0 and at most {most:.0f}")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        scheme, _ = parts.scheme, parts.port
    except ValueError:  # its text holds parts of the URL
        scheme = ""
    if scheme not in _SCHEMES:
        raise UsageError(
            "Cache(redis=...)",
            found="an address that is no Redis URL (not shown: it may hold a password)",
            wanted="redis://host:6379/0, rediss://... or unix:///path/to/socket",
        ) from None


def _wrong(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"Cache({name}=...)", found=str(value), wanted=wanted)
