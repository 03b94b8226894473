"""The cache as a client's caller sees it: where an answer came from, whatever happens to Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.client.cache.conftest import RedisServer
from tests.client.conftest import DIGITS
from tritonkit.client import AsyncClient, Cache, Client, Reply
from tritonkit.testing import AsyncMemoryTransport, MemoryTransport

TIMEOUT_S = 0.5  # generous: a loaded machine must not make a miss of a hit


def shared(url: str) -> Cache:
    """Answers are kept in Redis, and here for no time at all."""
    return Cache(ttl_s=1e-6, redis=url, redis_ttl_s=600, redis_timeout_s=TIMEOUT_S)


def until(origin: str, call: Callable[[], Reply]) -> None:
    """Call until an answer comes from there: after a failure Redis is left alone for a while."""
    end = time.monotonic() + 20
    while (latest := call().origin) != origin:
        assert time.monotonic() < end, latest
        time.sleep(0.05)


def test_redis_stopped_and_restarted(start_redis: Callable[..., RedisServer]) -> None:
    """While it is away every call is served, and afterwards answers are kept again."""
    redis = start_redis()
    with Client(transport=MemoryTransport({"digits": DIGITS}), cache=shared(redis.url)) as client:
        digits = client.model("digits")
        assert digits(image=b"123").origin == "server"
        until("l2", lambda: digits(image=b"123"))
        redis.kill()
        for length in range(20):
            reply = digits(image=b"x" * length)
            assert (reply.origin, reply["score"].tolist()) == ("server", [[length]])
        redis.start()
        until("l2", lambda: digits(image=b"123"))
        assert digits(image=b"123")["score"].tolist() == [[3]]


def test_two_clients_share_answers(start_redis: Callable[..., RedisServer]) -> None:
    """A process finds another's answers in Redis, also if it awaits its calls."""
    redis = start_redis()
    with Client(transport=MemoryTransport({"digits": DIGITS}), cache=shared(redis.url)) as client:
        assert client.precompute("digits", [b"1", b"22"]) == 2

    async def other() -> Reply:
        transport = AsyncMemoryTransport({"digits": DIGITS})
        async with AsyncClient(transport=transport, cache=shared(redis.url)) as client:
            return await (await client.model("digits")).predict(image=b"22")

    reply = asyncio.run(other())
    assert (reply.origin, reply.attempts, reply["score"].tolist()) == ("l2", 0, [[2]])
