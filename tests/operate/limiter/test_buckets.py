"""Buckets in a real Redis: the rate and the burst are what a key has, however many processes count."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.client.cache.conftest import RedisServer
from tritonkit.errors import UsageError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.gateway import SharedLimits
from tritonkit.operate.limiter.buckets import Buckets, RedisLostError
from tritonkit.operate.limiter.rates import Rate
from tritonkit.serve.ports import check_free

StartRedis = Callable[..., RedisServer]
PATIENT_MS = 10_000


@asynccontextmanager
async def opened(redis: RedisServer, folder: Path = Path(), **more: str) -> AsyncIterator[Buckets]:
    """Buckets there, which wait for a busy machine."""
    made = Buckets(SharedLimits(redis=redis.url, timeout_ms=PATIENT_MS, **more), folder)
    yield made
    await made.aclose()


def now_s(redis: RedisServer) -> float:
    """Time by Redis' clock, which decides."""
    seconds, microseconds = redis.client.time()
    return float(seconds) + microseconds / 1e6


@pytest.mark.slow
@pytest.mark.parametrize(("per_s", "tokens"), [(200.0, 10), (99.9, 5), (100 / 3, 2)])
def test_two_processes_together_admit_one_rate(start_redis: StartRedis, per_s: float, tokens: int) -> None:
    """They admit what the rate adds to an empty bucket, between the earliest and latest moment by Redis' clock."""
    redis = start_redis()
    # Not full again in less than five minutes: what nobody takes meanwhile is not lost.
    rate = Rate("a", per_s, round(300 * per_s))

    async def run() -> tuple[int, float, float]:
        """Number of tokens taken until the bucket was found empty, and the least and most seconds that this took."""
        async with opened(redis) as one, opened(redis) as other:
            before = now_s(redis)
            assert (await one.take(rate, rate.burst))[0]
            emptied, count = now_s(redis), 0
            while True:
                began = now_s(redis)
                answers = [
                    admitted for admitted, _ in await asyncio.gather(*(b.take(rate, tokens) for b in (one, other)))
                ]
                count += tokens * sum(answers)
                if not all(answers) and began > emptied + 1.5:
                    return count, began - emptied, now_s(redis) - before

    count, least_s, most_s = asyncio.run(run())
    assert per_s * least_s - 2 * tokens <= count <= per_s * most_s + 1


def test_a_burst_and_no_more(start_redis: StartRedis) -> None:
    """A burst at one moment is admitted; each caller has a bucket of its own."""
    redis = start_redis()

    async def run() -> list[int]:
        async with opened(redis) as one:
            counts = []
            for name in ("a", "b"):
                taken = [await one.take(Rate(name, 0.01, 5)) for _ in range(8)]
                assert [left for _, left in taken[:5]] == [4, 3, 2, 1, 0]
                counts.append(sum(has for has, _ in taken))
            return counts

    assert asyncio.run(run()) == [5, 5]


def test_one_decision_is_one_command(start_redis: StartRedis) -> None:
    """Between two of them nobody can come: and a bucket that is full again is forgotten."""
    redis = start_redis()

    async def run() -> int:
        async with opened(redis) as one:
            await one.take(Rate("a", 0.5, 2))
            before = redis.client.info("commandstats")["cmdstat_evalsha"]["calls"]
            for _ in range(7):
                await one.take(Rate("a", 0.5, 2))
            return int(redis.client.info("commandstats")["cmdstat_evalsha"]["calls"] - before)

    assert asyncio.run(run()) == 7
    assert [redis.client.ttl(key) for key in redis.client.scan_iter()] == [math.ceil(2 / 0.5)]


def test_a_clock_that_is_set_back_keeps_nobody_out(start_redis: StartRedis) -> None:
    """The debt of a bucket lies an hour ahead then: it is begun again, and one that owes its burst is not."""
    redis = start_redis()
    rate = Rate("a", 0.01, 5)

    async def run() -> list[bool]:
        async with opened(redis) as one:
            for _ in range(5):
                await one.take(rate)
            before = (await one.take(rate))[0]
            (key,) = redis.client.scan_iter()
            redis.client.set(key, float(redis.client.get(key)) + 3600, ex=3600)
            return [before, *[(await one.take(rate))[0] for _ in range(6)]]

    assert asyncio.run(run()) == [False, *[True] * 5, False]


def test_redis_is_reached_before_the_first_request(start_redis: StartRedis) -> None:
    """Nothing is changed there; one that is not there is said."""
    redis = start_redis()

    async def reached() -> bool:
        async with opened(redis) as one:
            return await one.connect()

    assert asyncio.run(reached())
    assert redis.client.dbsize() == 0
    redis.kill()
    assert not asyncio.run(reached())


def test_by_tls(start_redis: StartRedis, tmp_path: Path) -> None:
    """With the authority of its certificate; without it there is no decision."""
    make_certificates(tmp_path / "tls", ["127.0.0.1"])
    port = check_free("127.0.0.1", 0)
    start_redis(
        "--tls-port",
        str(port),
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        str(tmp_path / "tls/ca.crt"),
        "--tls-cert-file",
        str(tmp_path / "tls/server.crt"),
        "--tls-key-file",
        str(tmp_path / "tls/server.key"),
    )

    async def reached(ca: str | None) -> bool:
        url = f"rediss://127.0.0.1:{port}"
        one = Buckets(SharedLimits(redis=url, timeout_ms=PATIENT_MS, ca=ca), tmp_path)
        connected = await one.connect()
        await one.aclose()
        return connected

    assert asyncio.run(reached("tls/ca.crt"))
    assert not asyncio.run(reached(None))


def test_redis_that_is_gone_gives_no_decision(start_redis: StartRedis) -> None:
    """Said once as the first; it is left alone for a moment, and asked again later."""
    redis = start_redis()

    async def run() -> None:
        rate = Rate("a", 1e6, 1000)
        async with opened(redis) as one:
            await one.take(rate)
            redis.kill()
            with pytest.raises(RedisLostError) as first:
                await one.take(rate)
            with pytest.raises(RedisLostError) as second:
                await one.take(rate)
            assert (first.value.first, second.value.first) == (True, False)
            redis.start()
            for _ in range(400):
                with suppress(RedisLostError):
                    await one.take(rate)
                    break
                await asyncio.sleep(0.05)
            assert one.recovered

    asyncio.run(run())


def test_a_password_is_read_from_its_file(start_redis: StartRedis, tmp_path: Path) -> None:
    """With it there are decisions, without it or with another there are none."""
    redis = start_redis("--requirepass", "hunter2")
    (tmp_path / "right").write_text("hunter2\n")
    (tmp_path / "wrong").write_text("hunter3\n")
    for file in tmp_path.iterdir():
        file.chmod(0o600)

    async def has(file: str | None) -> bool:
        more = {"password_file": file} if file else {}
        async with opened(redis, tmp_path, **more) as one:
            try:
                return (await one.take(Rate("a", 1, 1)))[0]
            except RedisLostError:
                return False

    assert asyncio.run(has("right"))
    assert not asyncio.run(has("wrong"))
    assert not asyncio.run(has(None))


@pytest.mark.parametrize(("name", "message"), [("missing", "No such file"), ("open", "others can read")])
def test_a_password_file_that_cannot_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    """Before anything is asked."""
    (tmp_path / "open").write_text("hunter2")
    (tmp_path / "open").chmod(0o644)
    with pytest.raises(UsageError, match=message):
        Buckets(SharedLimits(redis="redis://127.0.0.1", password_file=name), tmp_path)
