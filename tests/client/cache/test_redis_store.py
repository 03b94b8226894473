"""The second level, on a real Redis: shared by caches, and never the reason for a wrong or a failed call."""

from __future__ import annotations

import asyncio
import logging
import pickle
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritonkit.client.cache import Cache, Entry, PredictionCache
from tritonkit.client.cache.entry import decode, encode
from tritonkit.client.steps import run_async, run_blocking

if TYPE_CHECKING:
    from tests.client.cache.conftest import Clock, Maker, RedisServer

MakeCache = Callable[..., PredictionCache]
StartRedis = Callable[..., "RedisServer"]


def key(cache: PredictionCache, number: float = 0.0, version: str = "") -> bytes:
    """The key of a call with one number."""
    return cache.key(version, [b"digits", np.float32(number).tobytes()])


def fetch(cache: PredictionCache, maker: Any, number: float = 0.0, **more: Any) -> str:
    """Make one call in this thread and check the answer; where it came from."""
    kept, origin = run_blocking(cache.fetch(key(cache, number), maker, **more))
    check(kept, maker.value)
    return origin


async def fetch_in_task(cache: PredictionCache, maker: Any, number: float = 0.0) -> str:
    """The same in a task."""
    kept, origin = await run_async(cache.fetch(key(cache, number), maker))
    check(kept, maker.value)
    return origin


def check(kept: Entry, value: float) -> None:
    """The answer is whole, and read-only."""
    assert kept.model == "digits"
    assert kept.outputs["label"].tolist() == [[b"one", b""]]
    assert kept.outputs["score"].tolist() == [[value] * 3]
    assert not any(array.flags.writeable for array in kept.outputs.values())


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something at a port that takes connections and is no Redis; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            with suppress(OSError):
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        for connection in held:
            connection.close()


def test_processes_share_answers(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """A cache finds another's answers in Redis, and then in its own memory."""
    one, other = make_cache(redis=redis_server.url), make_cache(redis=redis_server.url)
    origins = [fetch(one, maker), fetch(one, maker), fetch(other, maker), fetch(other, maker)]
    assert origins == ["server", "l1", "l2", "l1"]
    assert maker.calls == 1


def test_tasks_share_answers_with_threads(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """A task finds in Redis what a thread's call stored, and the other way round."""

    async def main() -> list[str]:
        cache = make_cache(redis=redis_server.url)
        try:
            return [await fetch_in_task(cache, maker, number) for number in (0.0, 0.0, 1.0)]
        finally:
            await cache.aclose()

    assert fetch(make_cache(redis=redis_server.url), maker) == "server"
    assert asyncio.run(main()) == ["l2", "l1", "server"]
    assert fetch(make_cache(redis=redis_server.url), maker, 1.0) == "l2"


def test_a_unix_socket_and_a_password_work(make_cache: MakeCache, maker: Maker, start_redis: StartRedis) -> None:
    """Redis can be behind a socket file, and ask for a password."""
    server = start_redis("--requirepass", "hunter2")
    urls = [f"redis://:hunter2@127.0.0.1:{server.port}", f"unix://:hunter2@{server.socket}"]
    assert [fetch(make_cache(redis=url), maker) for url in urls] == ["server", "l2"]


def test_tls_works_and_is_checked(make_cache: MakeCache, maker: Maker, start_redis: StartRedis, tmp_path: Path) -> None:
    """`rediss://` stores over TLS for threads and tasks; a certificate nobody vouches for is not talked to."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "apt-get install openssl"
    certificate, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            secret,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_redis(
        "--tls-port",
        str(port),
        "--tls-cert-file",
        str(certificate),
        "--tls-key-file",
        str(secret),
        "--tls-auth-clients",
        "no",
    )
    url = f"rediss://127.0.0.1:{port}/0"
    trusting = f"{url}?ssl_ca_certs={certificate}"

    async def main() -> str:
        cache = make_cache(redis=trusting)
        try:
            return await fetch_in_task(cache, maker)
        finally:
            await cache.aclose()

    assert fetch(make_cache(redis=trusting), maker) == "server"
    assert fetch(make_cache(redis=trusting), maker) == "l2"
    assert asyncio.run(main()) == "l2"
    assert fetch(make_cache(redis=url), maker) == "server"


def test_what_is_stored_is_plain_and_ends(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """Keys say whose they are, values have the layout, and each goes away after `redis_ttl_s`."""
    cache = make_cache(redis=redis_server.url, redis_ttl_s=1000, namespace="eu")
    fetch(cache, maker)
    client = redis_server.client
    with client:
        (name,) = client.keys("*")
        assert name == b"tritonkit:2:eu:" + key(cache).hex().encode()
        assert 990_000 < client.pttl(name) <= 1_000_000
        assert decode(client.get(name), key(cache)) is not None


def test_namespaces_do_not_see_each_other(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """Two deployments with one Redis keep their answers apart."""
    assert fetch(make_cache(redis=redis_server.url, namespace="eu"), maker) == "server"
    assert fetch(make_cache(redis=redis_server.url, namespace="us"), maker) == "server"


def test_an_answer_in_redis_gets_too_old(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """After `redis_ttl_s` the server is asked again."""
    fetch(make_cache(redis=redis_server.url, redis_ttl_s=0.05), maker)
    time.sleep(0.15)
    assert fetch(make_cache(redis=redis_server.url), maker) == "server"


def test_errors_are_not_stored(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """A call that failed leaves nothing in Redis."""
    maker.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        fetch(make_cache(redis=redis_server.url), maker)
    with redis_server.client as client:
        assert client.dbsize() == 0


def test_a_large_answer_is_not_stored(make_cache: MakeCache, redis_server: RedisServer, too_large: int) -> None:
    """An answer above 16 MiB is kept here and not given to Redis."""

    def make() -> Any:
        yield from ()
        return Entry("digits", "1", {"y": np.zeros(too_large, np.uint8)})

    cache = make_cache(redis=redis_server.url)
    assert run_blocking(cache.fetch(key(cache), make))[1] == "server"
    assert run_blocking(cache.fetch(key(cache), make))[1] == "l1"
    with redis_server.client as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value[:-1],
        lambda value: value + b"x",
        lambda value: value[:60] + bytes([value[60] ^ 1]) + value[61:],
        lambda value: value[:4] + b"\x02\x00" + value[6:],
        lambda value: b"",
        lambda value: b"somebody else's",
        lambda value: pickle.dumps({"label": 1}),
        lambda value: encode(Entry("digits", "1", {"score": np.zeros(3)}), b"u" + bytes(32)),
    ],
    ids=["cut", "longer", "changed", "newer", "empty", "foreign", "pickle", "another key's"],
)
def test_a_spoilt_value_is_not_used(
    make_cache: MakeCache, maker: Maker, redis_server: RedisServer, spoil: Callable[[bytes], bytes]
) -> None:
    """The server is asked instead, and its answer takes the spoilt one's place."""
    fetch(make_cache(redis=redis_server.url), maker)
    with redis_server.client as client:
        (name,) = client.keys("*")
        client.set(name, spoil(client.get(name)))
    assert fetch(make_cache(redis=redis_server.url), maker) == "server"
    assert fetch(make_cache(redis=redis_server.url), maker) == "l2"


def test_a_key_of_another_type_is_not_used(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """A list under our name is an error of Redis, and no error of the call."""
    cache = make_cache(redis=redis_server.url)
    with redis_server.client as client:
        client.lpush(f"tritonkit:2::{key(cache).hex()}", "x")
    assert fetch(cache, maker) == "server"


def test_an_older_versions_answer_in_redis_is_not_used(
    make_cache: MakeCache, maker: Maker, redis_server: RedisServer
) -> None:
    """A client that has seen version 2 does not take version 1 from Redis; the answer there is replaced."""
    fetch(make_cache(redis=redis_server.url), maker)
    newer = make_cache(redis=redis_server.url)
    newer.saw("digits", "2")
    maker.version, maker.value = "2", 2.5
    assert fetch(newer, maker) == "server"
    assert fetch(make_cache(redis=redis_server.url), maker) == "l2"


def test_a_newer_versions_answer_in_redis_makes_one_ask(
    make_cache: MakeCache, maker: Maker, redis_server: RedisServer
) -> None:
    """A client that knows version 1 and finds version 2 calls the server, and so learns of it."""
    older = make_cache(redis=redis_server.url)
    fetch(older, maker)
    fetch(older, maker, 1.0)
    maker.version, maker.value = "2", 2.5
    other = make_cache(redis=redis_server.url)
    other.saw("digits", "2")
    fetch(other, maker, 2.0)
    assert fetch(older, maker, 2.0) == "server"
    assert fetch(older, maker, 2.0) == "l1"
    assert fetch(older, maker, 0.0) == "server"


def test_without_a_redis_calls_are_answered(
    make_cache: MakeCache, maker: Maker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """With nobody at the address every call goes to the server; one quiet line says so, without the password."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cache = make_cache(redis=f"redis://:hunter2@127.0.0.1:{port}/0")
    with caplog.at_level(logging.DEBUG, logger="tritonkit"):
        for number in range(20):
            assert fetch(cache, maker, float(number)) == "server"
            clock.turn(1)
    assert fetch(cache, maker, 19.0) == "l1"
    (record,) = [record for record in caplog.records if record.name == "tritonkit.cache"]
    assert record.levelno == logging.DEBUG
    assert f"127.0.0.1:{port}" in record.getMessage()
    assert "hunter2" not in caplog.text


def test_redis_killed_and_started_again(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """Calls go on while it is gone, without another try in each; it is used again when it is back."""
    cache = make_cache(redis=redis_server.url, ttl_s=1)
    assert fetch(cache, maker) == "server"
    clock.turn(2)
    assert fetch(cache, maker) == "l2"
    redis_server.kill()
    for number in range(10):
        assert fetch(cache, maker, float(number + 1)) == "server"
    redis_server.start()
    clock.turn(10)
    assert fetch(cache, maker, 50.0) == "server"
    clock.turn(2)
    assert fetch(cache, maker, 50.0) == "l2"


def test_redis_restarted_between_two_calls(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """A connection that died while it lay idle costs nothing: a new one is made."""
    cache = make_cache(redis=redis_server.url)
    assert fetch(cache, maker) == "server"
    redis_server.kill()
    redis_server.start()
    assert fetch(cache, maker, 1.0) == "server"
    with redis_server.client as client:
        assert client.dbsize() == 1


def test_a_frozen_redis_delays_and_does_not_fail(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """A Redis that hangs costs its timeout once, then it is left alone; thawed, it is used again."""
    cache = make_cache(redis=redis_server.url, redis_timeout_s=1.0, ttl_s=1)
    fetch(cache, maker)
    redis_server.freeze()
    try:
        start = time.monotonic()
        assert fetch(cache, maker, 1.0) == "server"
        first_s = time.monotonic() - start
        start = time.monotonic()
        for number in range(2, 12):
            assert fetch(cache, maker, float(number)) == "server"
        ten_more_s = time.monotonic() - start
    finally:
        redis_server.thaw()
    assert first_s >= 0.99
    assert ten_more_s < 5 * 1.0, "each would have waited"
    for _ in range(50):  # it may be slow to wake
        clock.turn(20)
        if fetch(cache, maker) == "l2":
            return
    raise AssertionError("never used again")


def test_a_frozen_redis_does_not_fail_tasks(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """The same for tasks: kept connections hang, calls are answered, and it is used again."""

    async def main() -> None:
        cache = make_cache(redis=redis_server.url, redis_timeout_s=0.2, ttl_s=1)
        assert await fetch_in_task(cache, maker) == "server"
        redis_server.freeze()
        try:
            calls = (fetch_in_task(cache, maker, float(number)) for number in range(1, 30))
            assert set(await asyncio.gather(*calls)) == {"server"}
        finally:
            redis_server.thaw()
        for _ in range(50):
            clock.turn(20)
            if await fetch_in_task(cache, maker) == "l2":
                break
        else:
            raise AssertionError("never used again")
        await cache.aclose()

    asyncio.run(main())


def test_redis_killed_and_started_again_under_tasks(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """Tasks go on while it is gone; it is used again when it is back."""

    async def main() -> None:
        cache = make_cache(redis=redis_server.url, ttl_s=1)
        assert await fetch_in_task(cache, maker) == "server"
        redis_server.kill()
        assert await fetch_in_task(cache, maker, 1.0) == "server"
        redis_server.start()
        clock.turn(10)
        assert await fetch_in_task(cache, maker, 2.0) == "server"
        clock.turn(2)
        assert await fetch_in_task(cache, maker, 2.0) == "l2"
        await cache.aclose()

    asyncio.run(main())


def test_cancelled_tasks_mix_up_no_answers(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """Tasks cancelled while Redis answers leave no answer behind for the next question."""

    def call(number: int) -> Any:
        def make() -> Any:
            yield from ()
            return Entry("digits", "1", {"y": np.array([number])})

        return make

    async def main() -> None:
        cache = make_cache(redis=redis_server.url, ttl_s=0.5)
        for number in range(30):
            await run_async(cache.fetch(key(cache, number), call(number)))
        for turn in range(20):
            clock.turn(1)
            tasks = [
                asyncio.create_task(run_async(cache.fetch(key(cache, number), call(number)))) for number in range(30)
            ]
            for _ in range(turn):
                await asyncio.sleep(0)
            for number in range(0, 30, 3):
                tasks[number].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for number, answer in enumerate(answers):
                if not isinstance(answer, BaseException):
                    assert answer[0].outputs["y"].tolist() == [number]
                else:
                    assert isinstance(answer, asyncio.CancelledError)
        await cache.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$-7\r\n", b"*9\r\n", b""])
def test_something_that_is_no_redis_does_not_fail_calls(make_cache: MakeCache, maker: Maker, reply: bytes) -> None:
    """Another server at the address, garbage and closed connections read as nothing kept."""

    def answer(connection: socket.socket) -> None:
        if reply:
            connection.sendall(reply)
        connection.shutdown(socket.SHUT_WR)

    async def main(url: str) -> None:
        cache = make_cache(redis=url, redis_timeout_s=0.2)
        assert await fetch_in_task(cache, maker) == "server"
        await cache.aclose()

    with peer(answer) as url:
        assert fetch(make_cache(redis=url, redis_timeout_s=0.2), maker) == "server"
        asyncio.run(main(url))


def test_a_wrong_password_and_a_full_redis_do_not_fail_calls(
    make_cache: MakeCache, maker: Maker, start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """Values that Redis refuses are not kept there, and no refusal is shown in full."""
    server = start_redis("--requirepass", "right", "--maxmemory", "1")
    url = f"127.0.0.1:{server.port}"
    with caplog.at_level(logging.DEBUG):
        for address in (f"redis://{url}", f"redis://:hunter2@{url}", f"redis://:right@{url}"):
            assert fetch(make_cache(redis=address), maker) == "server"
    assert "hunter2" not in caplog.text


def test_redis_is_not_asked_when_time_is_short(
    make_cache: MakeCache, maker: Maker, clock: Clock, redis_server: RedisServer
) -> None:
    """With less time left than Redis may take, it is neither read nor written."""
    settings: dict[str, Any] = {"redis": redis_server.url, "redis_timeout_s": 10.0}
    fetch(make_cache(**settings), maker)
    assert fetch(make_cache(**settings), maker, deadline=clock() + 11) == "l2"
    assert fetch(make_cache(**settings), maker, deadline=clock() + 9) == "server"
    fetch(make_cache(**settings), maker, 5.0, deadline=clock() + 9)
    with redis_server.client as client:
        assert client.dbsize() == 1


def test_one_call_asks_redis_once(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """Tasks with the same inputs ask Redis once, not each."""

    async def main() -> set[str]:
        cache = make_cache(redis=redis_server.url)
        try:
            return set(await asyncio.gather(*(fetch_in_task(cache, maker) for _ in range(50))))
        finally:
            await cache.aclose()

    fetch(make_cache(redis=redis_server.url), maker)
    with redis_server.client as client:
        before = client.info("commandstats")["cmdstat_get"]["calls"]
        assert asyncio.run(main()) == {"l2"}
        assert client.info("commandstats")["cmdstat_get"]["calls"] == before + 1


def test_a_cache_can_be_used_in_a_second_loop(make_cache: MakeCache, maker: Maker, redis_server: RedisServer) -> None:
    """Each event loop gets connections of its own."""
    cache = make_cache(redis=redis_server.url, l1=1)

    async def main(number: float) -> str:
        try:
            await fetch_in_task(cache, maker, number)
            await fetch_in_task(cache, maker, -1.0)
            return await fetch_in_task(cache, maker, number)
        finally:
            await cache.aclose()

    assert [asyncio.run(main(1.0)), asyncio.run(main(2.0))] == ["l2", "l2"]


def test_closing_twice_is_closing_once(make_cache: MakeCache, redis_server: RedisServer) -> None:
    """Both ways to close can be used again, and before anything was called."""
    cache = PredictionCache(Cache(redis=redis_server.url))
    cache.close()
    cache.close()
    asyncio.run(cache.aclose())
    asyncio.run(cache.aclose())
