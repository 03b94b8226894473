"""The settings of a cache: sizes, lifetimes, and sharing with other processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tritonkit.client.checks import check_setting, is_whole
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
        l1: most answers kept in this process; the least recently used are dropped first.
        ttl_s: seconds an answer is used from this process's memory.
        redis: `redis://[:password@]host[:port][/db]`, `rediss://...` (TLS) or `unix:///path`, None for
            this process alone. Its password is in no message and not in `repr`.
        redis_ttl_s: seconds an answer stays in Redis.
        l1_bytes: most bytes of all answers in this process; a small answer counts as `l1_bytes / l1`.
        namespace: the name of the servers whose answers are shared in Redis. Give each deployment its own
            if one Redis serves several: version 1 of a model may differ between them.
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
        for name in ("l1", "l1_bytes"):
            check_setting(self, name, is_whole(getattr(self, name), 1), "a whole number above 0")
        check_setting(self, "l1_bytes", self.l1_bytes >= self.l1, f"at least l1, {self.l1}")
        self._check_seconds("ttl_s", _LONGEST_S)
        # Redis counts milliseconds, and refuses 0 of them.
        self._check_seconds("redis_ttl_s", _LONGEST_S, least=0.001)
        self._check_seconds("redis_timeout_s", 10.0)
        fine = len(self.namespace) <= 100 and self.namespace.isprintable()
        check_setting(self, "namespace", fine, "at most 100 printable characters")
        if self.redis is not None:
            _check_url(self.redis)

    def _check_seconds(self, name: str, most: float, least: float = 0.0) -> None:
        value = getattr(self, name)
        fine = least <= value <= most and value > 0
        check_setting(self, name, fine, f"seconds above 0 and at most {most:.0f}")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        scheme, _ = parts.scheme, parts.port
    except ValueError:  # its text holds parts of the URL
        scheme = ""
    if scheme not in _SCHEMES:
        raise UsageError(
            "Cache(redis=...)",
            found="an address that is not a Redis URL (hidden, because it may hold a password)",
            wanted="redis://host:6379/0, rediss://... or unix:///path/to/socket",
        ) from None
