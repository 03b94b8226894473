"""The service as a gateway asks it: over gRPC, with the keys that there are, before a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.cli.running import failed, tritonkit_here
from tests.client.cache.conftest import RedisServer
from tritonkit.errors import ServerStartError, UsageError
from tritonkit.operate.gateway import SharedLimits
from tritonkit.operate.gateway.spec import Jwt
from tritonkit.operate.keys import FILE, add_key, revoke_key
from tritonkit.operate.limiter import Buckets, Limiter
from tritonkit.operate.limiter.messages import METHOD, OK, OVER_LIMIT, SERVICE, messages
from tritonkit.operate.limiter.rates import Rates
from tritonkit.operate.limiter.service import _bound

StartRedis = Callable[..., RedisServer]
Ask = Callable[..., Any]


def answered(redis: RedisServer, folder: Path, calls: Callable[[Ask], Any]) -> list[str]:
    """Let `calls` ask a service over gRPC; what it said meanwhile."""
    request, response = messages()
    logged: list[str] = []

    async def run() -> None:
        buckets = Buckets(SharedLimits(redis=redis.url, timeout_ms=10_000), folder)
        server, address = _bound(Limiter(Rates(folder), buckets, logged.append), "127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            method = channel.unary_unary(
                f"/{SERVICE}/{METHOD}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )

            async def ask(*names: str, hits: int = 0, key: str = "key") -> Any:
                descriptors = [{"entries": [{"key": key, "value": name}]} for name in names]
                sent = request(domain="gateway", descriptors=descriptors, hits_addend=hits)
                return await method(sent, timeout=30)

            await calls(ask)
        await server.stop(None)
        await buckets.aclose()

    asyncio.run(run())
    return logged


def test_keys_and_hits(start_redis: StartRedis, tmp_path: Path) -> None:
    """A request may count for several; who has no rate passes; one descriptor that is over is enough."""
    add_key(tmp_path / FILE, "slow", rate_per_s=0.01, burst=5)
    add_key(tmp_path / FILE, "free")

    async def calls(ask: Ask) -> None:
        first = await ask("slow", hits=3)
        assert (first.overall_code, first.statuses[0].limit_remaining) == (OK, 2)
        assert (await ask("slow", hits=3)).overall_code == OVER_LIMIT
        assert (await ask("slow", hits=2)).overall_code == OK
        both = await ask("free", "slow")
        assert [status.code for status in both.statuses] == [OK, OVER_LIMIT]
        assert both.overall_code == OVER_LIMIT
        for name in ("free", "unknown", ""):
            assert (await ask(name, hits=1000)).overall_code == OK
        assert (await ask("slow", key="other")).overall_code == OK
        assert (await ask()).overall_code == OK

    assert answered(start_redis(), tmp_path, calls) == []


def test_without_redis_a_call_fails(start_redis: StartRedis, tmp_path: Path) -> None:
    """It fails as UNAVAILABLE, reported once; keys without a rate need no Redis."""
    redis = start_redis()
    add_key(tmp_path / FILE, "slow", rate_per_s=1)

    async def calls(ask: Ask) -> None:
        redis.kill()
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as caught:
                await ask("slow")
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert (await ask("free")).overall_code == OK

    messages = answered(redis, tmp_path, calls)
    assert messages == [f"Redis at 127.0.0.1:{redis.port} is lost: each gateway counts alone"]


def test_rates_are_those_of_the_keys_as_they_are_now(tmp_path: Path) -> None:
    """An unreadable file leaves them as they were, and is reported once."""
    messages: list[str] = []
    file = tmp_path / FILE
    add_key(file, "a", rate_per_s=5, burst=2)
    rates = Rates(tmp_path, None, messages.append)
    first = rates.of("a")
    assert first is not None
    assert (first.per_s, first.burst, len(first.bucket)) == (5, 2, 32)
    add_key(file, "b", rate_per_s=7)
    assert rates.of("b") is None
    rates.refresh()
    assert rates.of("b") is not None
    text = file.read_text()
    file.write_text("{")
    for _ in range(2):
        rates.refresh()
    assert rates.of("a") == first
    file.write_text(text)
    revoke_key(file, "a")
    rates.refresh()
    assert rates.of("a") is None
    assert len(messages) == 3
    assert "left as they were" in messages[1]


def test_subjects_of_tokens_have_a_rate_each(tmp_path: Path) -> None:
    """That of gateway.yaml, where it has one; no key has such a name."""
    jwt = Jwt(issuer="me", jwks="jwks.json", rate_per_s=30)
    rates = Rates(tmp_path, jwt)
    alice, bob = rates.of("jwt:alice"), rates.of("jwt:bob")
    assert alice is not None
    assert bob is not None
    assert (alice.per_s, alice.burst) == (30, 3)
    assert alice.bucket != bob.bucket
    assert Rates(tmp_path, Jwt(issuer="me", jwks="jwks.json")).of("jwt:alice") is None


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    """A gateway.yaml without a Redis, an address that is none, one that is taken."""
    (tmp_path / "gateway.yaml").write_text("port: 8443\n")
    words = ("limiter", "--gateway", str(tmp_path))
    assert "names no Redis" in failed(tritonkit_here(*words), 2)
    (tmp_path / "gateway.yaml").write_text("limits: {shared: {redis: 'redis://127.0.0.1:1'}}\n")
    limiter = Limiter(Rates(tmp_path), Buckets(SharedLimits(redis="redis://127.0.0.1:1"), tmp_path))

    async def run() -> None:
        with pytest.raises(UsageError, match="no address"):
            _bound(limiter, "here")
        server, address = _bound(limiter, "127.0.0.1:0")
        with pytest.raises(ServerStartError, match="cannot listen"):
            _bound(limiter, address)
        await server.stop(None)

    asyncio.run(run())
