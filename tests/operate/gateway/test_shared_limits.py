"""Two gateways and one Redis: a key's rate holds over both, and without Redis each counts alone."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.cache.conftest import RedisServer
from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.parts import program
from tests.waiting import eventually
from tritonkit.metrics import GATEWAY_UNDECIDED
from tritonkit.operate.keys import FILE, add_key
from tritonkit.serve.ports import check_free

pytestmark = pytest.mark.needs("envoy", "redis")

ADMITTED = 503  # there is no replica
RATE, BURST = 20.0, 2
CALLERS = 3
"""Callers per gateway."""
LOAD_S = 2.5
PASSWORD = "hunter2"  # noqa: S105


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One that runs, with a password."""
    server = RedisServer(str(program("redis-server")), tmp_path_factory.mktemp("redis"), "--requirepass", PASSWORD)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def gateways(
    start_gateway: StartGateway, redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Two with the same keys, each with a limiter of its own."""
    limiters: list[subprocess.Popen[str]] = []

    def start() -> Gateway:
        port = check_free("127.0.0.1", 0)
        shared = (
            f"{{redis: '{redis.url}', password_file: redis-password, service: '127.0.0.1:{port}', timeout_ms: 10000}}"
        )

        def prepare(folder: Path) -> None:
            (folder / "redis-password").write_text(PASSWORD)
            (folder / "redis-password").chmod(0o600)
            words = ("limiter", "--gateway", str(folder), "--listen", f"127.0.0.1:{port}")
            limiter = subprocess.Popen(
                [sys.executable, "-m", "tritonkit", *words],
                stdout=subprocess.PIPE,
                text=True,
                stderr=subprocess.STDOUT,
                env=os.environ,
            )
            limiters.append(limiter)
            assert limiter.stdout is not None
            assert limiter.stdout.readline() == f"limiter  127.0.0.1:{port}\n"

        return start_gateway(f"limits: {{shared: {shared}}}", prepare)

    pair = [start(), start()]
    made = tmp_path_factory.mktemp("keys") / FILE
    for name, rate in (("limited", RATE), ("free", None), ("slow", 0.01)):
        pair[0].keys[name] = add_key(made, name, ("*",), rate)[1]
    for gateway in pair:
        gateway.keys = pair[0].keys
        # In one step: a limiter reads all keys again, and says so once.
        shutil.copy(made, gateway.places.folder / "new").rename(gateway.places.folder / FILE)
        gateway.reload()
    for limiter in limiters:
        assert limiter.stdout is not None
        assert "rates were read again" in limiter.stdout.readline()
    yield pair
    for limiter in limiters:
        limiter.terminate()
        assert limiter.wait(60) == 0
        assert limiter.stdout is not None
        limiter.stdout.close()


def statuses(gateways: list[Gateway], name: str = "limited") -> tuple[Counter[int], float]:
    """Counts of statuses while callers of each gateway called without a pause, and the seconds they did."""
    counts: Counter[int] = Counter()
    lock = threading.Lock()

    def ask(gateway: Gateway, until: float) -> None:
        context = ssl.create_default_context(cafile=str(gateway.places.folder / "tls" / "ca.crt"))
        host, _, port = gateway.address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
        mine: Counter[int] = Counter()
        while time.monotonic() < until:
            connection.request("GET", "/v2", headers={"x-api-key": gateway.keys[name]})
            answer = connection.getresponse()
            answer.read()
            mine[answer.status] += 1
        connection.close()
        with lock:
            counts.update(mine)

    began = time.monotonic()
    threads = [threading.Thread(target=ask, args=(gateway, began + LOAD_S)) for gateway in [*gateways] * CALLERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, time.monotonic() - began


@pytest.mark.slow
def test_two_gateways_together_admit_one_rate(gateways: list[Gateway]) -> None:
    """Alone each would admit it: then there were twice as many."""
    counts, took_s = statuses(gateways)
    assert set(counts) == {ADMITTED, 429}
    assert counts[ADMITTED] <= 1.05 * (BURST + RATE * took_s) + 1
    assert counts[ADMITTED] > BURST
    assert [gateway.admin.undecided() for gateway in gateways] == [0, 0]


def test_what_is_refused_is_said(gateways: list[Gateway]) -> None:
    """Refusals over REST and gRPC are those of a single gateway; requests admitted by another gateway count."""
    first, second = gateways
    key = first.keys["slow"]
    second.get("/v2", {"x-api-key": key})
    assert first.get("/v2", {"x-api-key": key}) == (
        429,
        '{"error":"too many requests of this key: wanted fewer in a second"}\n',
    )
    method = "/inference.GRPCInferenceService/ServerLive"
    assert first.call(method, x_api_key=key)[0] == "RESOURCE_EXHAUSTED"
    asks = "/inference.GRPCInferenceService/ModelReady"  # not counted with these
    assert first.call(asks, b"\x0a\x06digits", x_api_key=key)[0] == "UNAVAILABLE"


def test_keys_without_a_rate_are_not_asked_about(gateways: list[Gateway], redis: RedisServer) -> None:
    """They do not wait for Redis, and none of them is refused."""
    import redis as library

    def decisions() -> int:
        stats = library.Redis(port=redis.port, password=PASSWORD).info("commandstats")
        return int(stats["cmdstat_evalsha"]["calls"])

    before = decisions()
    counts, _ = statuses(gateways, "free")
    assert set(counts) == {ADMITTED}
    assert decisions() == before


@pytest.mark.slow
def test_without_redis_requests_pass_and_each_gateway_counts_alone(gateways: list[Gateway], redis: RedisServer) -> None:
    """No caller is refused because of it; Envoy's counter says that there was no decision; later it is asked again."""
    redis.kill()
    counts, took_s = statuses(gateways)
    assert set(counts) == {ADMITTED, 429}
    assert counts[ADMITTED] <= 2 * (1.1 * RATE * took_s + BURST)
    assert all(gateway.admin.undecided() > 0 for gateway in gateways)
    for gateway in gateways:
        metrics = gateway.metrics()
        assert re.search(rf"^{GATEWAY_UNDECIDED}{{.*}} [1-9]", metrics, re.MULTILINE), metrics
    redis.start()

    def decided_again() -> bool:
        before = [gateway.admin.undecided() for gateway in gateways]
        answers = [gateway.get("/v2", {"x-api-key": gateway.keys["limited"]})[0] for gateway in gateways]
        return before == [gateway.admin.undecided() for gateway in gateways] and answers != []

    eventually(decided_again, "decisions again")
