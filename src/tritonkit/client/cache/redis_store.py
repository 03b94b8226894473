"""The second level: answers in Redis, for all processes that use it.

Redis can only make a call faster. Any failure reads as "nothing cached there", and after one
Redis is left alone for a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from tritonkit.client.cache.entry import Entry, decode, encode
from tritonkit.client.wire.names import look_up
from tritonkit.errors import UsageError
from tritonkit.extras import need_package

if TYPE_CHECKING:
    from tritonkit.client.cache.settings import Cache
    from tritonkit.client.steps import Steps

__all__ = ["LARGEST_BYTES", "RedisBackoff", "RedisStore"]

PREFIX = "tritonkit:2:"
"""Prefix of every key in Redis; its number changes with the meaning of keys or values."""

LARGEST_BYTES = 16 * 2**20
"""Most bytes of a stored answer: larger ones would block Redis, which does one thing at a time, for others."""

_CONNECTIONS = 16
_EXTRA = "tritonkit[cache]"
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0

_log = logging.getLogger("tritonkit.cache")


class RedisStore:
    """Answers by key in Redis, over connections for threads and others for the tasks of a loop.

    Raises:
        UsageError: redis is not installed, or its client refuses the URL. Nothing is sent yet.
    """

    def __init__(self, url: str, settings: Cache, clock: Callable[[], float]) -> None:
        parts = urlsplit(url)
        at = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
        self._address = at  # without the password
        self._url = url
        self._prefix = f"{PREFIX}{settings.namespace}:"
        self._ttl_ms = max(1, round(settings.redis_ttl_s * 1000))
        self._timeout_s = settings.redis_timeout_s
        self._clock = clock
        self._backoff = RedisBackoff(clock)
        self._threads: Any = self._checked_client()
        self._resolved = False
        """Whether the system knew the host's name when Redis last answered."""
        self._tasks: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, key: bytes) -> Steps[Entry | None]:
        """The answer under this key; None if there is no valid one or Redis fails."""
        stored = yield from self._query("GET", self._prefix + key.hex())
        return decode(stored, key) if isinstance(stored, bytes) else None

    def put(self, key: bytes, entry: Entry) -> Steps[None]:
        """Store an answer under this key, if it is not too large and Redis takes it."""
        try:
            value = encode(entry, key)
        except ValueError:  # the caller has the answer and must not lose it because it cannot be shared
            return
        if len(value) <= LARGEST_BYTES:
            yield from self._query("SET", self._prefix + key.hex(), value, "PX", self._ttl_ms)

    def close(self) -> None:
        """Close the connections of threads."""
        self._threads.connection_pool.disconnect()

    async def aclose(self) -> None:
        """Close the connections of this loop's tasks, and those of threads."""
        self.close()
        tasks, self._tasks, self._loop = self._tasks, None, None
        if tasks is not None:
            await tasks.connection_pool.disconnect()

    def _query(self, *words: Any) -> Steps[Any]:
        if not self._backoff.may_try():
            return None
        began = self._clock()
        try:
            answer = yield _Command(self, words)
        except Exception as error:  # down, hung, not Redis, out of memory, a refused password
            if self._backoff.failed(began):
                # Not its text: a refused login or URL may be in it.
                _log.debug("Redis at %s fails (%s)", self._address, type(error).__name__)
            return None
        if self._backoff.worked():
            _log.debug("Redis at %s answers again", self._address)
        return answer

    def execute(self, words: tuple[Any, ...]) -> Any:
        """Send a command from a thread; its answer."""
        keywords = self._threads.connection_pool.connection_kwargs
        if not self._resolved and "path" not in keywords:
            # Before a connection is made: no limit of redis-py's holds while a name is looked up.
            host, port = keywords.get("host", "localhost"), int(keywords.get("port", 6379))
            look_up(host, port).result(self._timeout_s)
        self._resolved = True
        try:
            return self._threads.execute_command(*words)
        except Exception:
            self._resolved = False
            raise

    async def execute_async(self, words: tuple[Any, ...]) -> Any:
        """Send a command from a task; its answer."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to the loop that opened them
            self._tasks = self._client("redis.asyncio")
            self._loop = loop
        # In addition to redis-py's own limits, which start again with every byte: a free connection, connecting,
        # logging in and the command may each take `timeout_s`.
        async with asyncio.timeout(4 * self._timeout_s):
            return await self._tasks.execute_command(*words)

    def _checked_client(self) -> Any:
        refused = need_package("redis", _EXTRA).RedisError
        try:
            client = self._client("redis")
            pool = client.connection_pool
            # Made, not opened: an option the URL may not have is an error now, not at the first call.
            pool.connection_class(**pool.connection_kwargs)
        except (TypeError, ValueError, refused):
            raise UsageError(
                "Cache(redis=...)",
                found="an address that the Redis client refuses (hidden, because it may hold a password)",
                wanted="redis://host:6379/0, rediss://... or unix:///path/to/socket, with options it knows",
            ) from None
        return client

    def _client(self, name: str) -> Any:
        """A client that tries once and is quick to give up: a call can be answered without it."""
        module, retry = need_package(name, _EXTRA), need_package(f"{name}.retry", _EXTRA)
        pool = module.BlockingConnectionPool.from_url(
            self._url,
            max_connections=_CONNECTIONS,
            timeout=self._timeout_s,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            retry=retry.Retry(need_package("redis.backoff", _EXTRA).NoBackoff(), 0),
            protocol=2,
        )
        return module.Redis(connection_pool=pool)


class _Command(NamedTuple):
    """One command to Redis, as a step."""

    store: RedisStore
    words: tuple[Any, ...]

    def block(self) -> Any:
        """Send the command and wait for the reply in this thread."""
        return self.store.execute(self.words)

    async def wait(self) -> Any:
        """Send the command and wait for the reply in this task."""
        return await self.store.execute_async(self.words)


class RedisBackoff:
    """Pauses after failures: 0.1 s at first, twice as long each time, 5 s at most. Threads may share it.

    At the end of a pause one caller tries, and the others keep away until the outcome is known. Failures of
    one outage that come in together count once.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.pause_s = 0.0
        """Length of the pause; 0 while all is well."""
        self._until = 0.0
        self._failed_at = float("-inf")

    def may_try(self) -> bool:
        """Whether this caller may use it now."""
        if not self.pause_s:
            return True
        with self._lock:
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self.pause_s
            return True

    def failed(self, began: float) -> bool:
        """Note a failed try that began at `began`; True if all was well until now."""
        with self._lock:
            if began < self._failed_at:
                return False
            first = not self.pause_s
            self._failed_at = self._clock()
            self.pause_s = min(_LONGEST_PAUSE_S, 2 * self.pause_s) or _FIRST_PAUSE_S
            self._until = self._failed_at + self.pause_s
            return first

    def worked(self) -> bool:
        """Note a try that went well; True if the last one had failed."""
        if not self.pause_s:
            return False
        with self._lock:
            recovered, self.pause_s = bool(self.pause_s), 0.0
            return recovered
