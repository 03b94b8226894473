"""Buckets of tokens in Redis: every decision is one script there, by the clock of Redis.

The algorithm is GCRA, which admits what a bucket of tokens does and keeps one number for each caller. A sliding window
would let all of its requests come in one burst, regardless of a key's burst.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tritonkit.client.cache.redis_store import RedisBackoff
from tritonkit.client.wire.secure import Secret
from tritonkit.errors import UsageError
from tritonkit.extras import need_package
from tritonkit.operate.gateway.spec import SharedLimits
from tritonkit.operate.limiter.rates import Rate
from tritonkit.operate.store.keys import read_private

__all__ = ["REQUIREMENT", "Buckets", "RedisLostError"]

REQUIREMENT = "tritonkit[gateway]"
_PREFIX = "tritonkit:limit"
_CONNECTIONS = 32
_TRIES = 3
_AHEAD_S = 1.0
"""Debt of a bucket beyond the time of its burst, in seconds; only a clock that was set back causes more."""
_SHARE_OF_TIMEOUT = 0.75
"""Part of a gateway's timeout that Redis may use, so that the gateway still hears of a failure."""


class RedisLostError(Exception):
    """Redis gives no decision. `first`: whether it gave the previous one."""

    def __init__(self, first: bool) -> None:
        super().__init__("Redis gives no decision")
        self.first = first


class Buckets:
    """The buckets in a Redis.

    Args:
        shared: the settings of Redis, with its address.
        folder: the gateway's folder, to which the paths in `shared` are relative.

    Raises:
        UsageError: a package is missing, a file cannot be read, or the Redis client does not take the address.
    """

    def __init__(self, shared: SharedLimits, folder: Path) -> None:
        self._timeout_s = _SHARE_OF_TIMEOUT * shared.timeout_ms / 1000
        self._throttled = need_package("throttled.asyncio", REQUIREMENT)
        self._store = self._opened(shared, folder)
        self._limiters: dict[tuple[float, int], Any] = {}
        self._backoff = RedisBackoff(time.monotonic)
        self.address = _address(shared.redis)
        """Address of Redis, without a name or a password."""
        self.recovered = False
        """Whether the last decision is the first after a failure."""

    async def take(self, rate: Rate, tokens: int = 1) -> tuple[bool, int]:
        """Take tokens from a caller's bucket: whether they were there, and how many are left.

        Raises:
            RedisLostError: Redis gives no decision; it is not asked again for a moment.
        """
        began = time.monotonic()
        if not self._backoff.may_try():
            raise RedisLostError(False)
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await self._taken(rate, tokens)
        except Exception as error:  # gone, slow, no Redis at all, a refused password
            raise RedisLostError(self._backoff.failed(began)) from error
        self.recovered = self._backoff.worked()
        return not result.limited, int(result.state.remaining)

    async def connect(self) -> bool:
        """Connect to Redis before the first request; returns whether it answers. Nothing is changed there."""
        for _ in range(_TRIES):
            with suppress(Exception):  # whatever it is, the first decision says so again
                await self._limiter(Rate("connect", 1.0, 1)).limit("connect", 0)
                return True
        return False

    async def aclose(self) -> None:
        """Close the connections; the library that has opened them has no call for it."""
        await self._store._backend.get_client().connection_pool.disconnect()

    async def _taken(self, rate: Rate, tokens: int) -> Any:
        """The decision; a bucket is reset if the clock of Redis was set back.

        It would otherwise refuse its caller for as long as the clock went back. In normal operation no bucket owes more
        than its burst.
        """
        limiter = self._limiter(rate)
        result = await limiter.limit(rate.bucket, tokens)
        if result.state.reset_after > rate.burst / rate.per_s + _AHEAD_S:
            await self._store._backend.get_client().delete(limiter._prepare_key(rate.bucket))
            result = await limiter.limit(rate.bucket, tokens)
        return result

    def _limiter(self, rate: Rate) -> Any:
        """The library's object for a quota; keys with the same quota share it."""
        if (rate.per_s, rate.burst) not in self._limiters:
            quotas = need_package("throttled.asyncio.rate_limiter", REQUIREMENT)
            # Tokens in a whole number of seconds, as the library expects: 99.9/s is 999 in 10 s.
            exact = Fraction(rate.per_s).limit_denominator(10_000)
            quota = quotas.per_duration(timedelta(seconds=exact.denominator), exact.numerator, rate.burst)
            kind = self._throttled.RateLimiterRegistry.get("gcra")
            self._limiters[rate.per_s, rate.burst] = kind(quota, self._store, key_prefix=_PREFIX)
        return self._limiters[rate.per_s, rate.burst]

    def _opened(self, shared: SharedLimits, folder: Path) -> Any:
        """The library's store; nothing is sent yet."""
        retry = need_package("redis.asyncio.retry", REQUIREMENT)
        none = retry.Retry(need_package("redis.backoff", REQUIREMENT).NoBackoff(), 0)
        wait = {
            "timeout": self._timeout_s,
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
        }
        options: dict[str, Any] = {"max_connections": _CONNECTIONS, "retry": none, **wait}
        if shared.password_file is not None:
            options["password"] = _password(folder / shared.password_file)
        if shared.ca is not None:
            options["ssl_ca_certs"] = str(folder / shared.ca)
        try:
            return self._throttled.RedisStore(
                server=shared.redis,
                options={
                    "CONNECTION_POOL_CLASS": "redis.asyncio.BlockingConnectionPool",
                    "CONNECTION_POOL_KWARGS": options,
                },
            )
        except (TypeError, ValueError) as error:
            raise UsageError(
                "limits.shared.redis",
                found=f"{shared.redis}: {error}",
                wanted="redis://HOST:PORT, or rediss:// for TLS",
            ) from None


def _password(file: Path) -> str:
    text = read_private(file).decode("utf-8", "replace").strip()
    return Secret(text, where=f"the password in {file}").reveal()


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}"
