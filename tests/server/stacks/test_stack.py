"""Replicas behind a gateway on real Tritons: the right answers through TLS and key, also while parts die."""

from __future__ import annotations

import json
import os
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import tritonkit
from tests.client.cache.conftest import RedisServer
from tests.parts import program
from tests.ports import free_port
from tests.server.watched import CALLERS, IMAGE, Load, Watched
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import TritonkitError
from tritonkit.operate.certificates import make_certificates, read_certificate
from tritonkit.operate.keys import add_key, revoke_key
from tritonkit.operate.observe import PANELS, Need
from tritonkit.operate.stack import StackPart
from tritonkit.serve.runs import find_key_file

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow]


class Shared(Watched):
    """Three replicas of digits, whose gateway counts in a Redis that a test may start."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.redis_port = free_port()
        shared = f"{{redis: 'redis://127.0.0.1:{self.redis_port}', timeout_ms: 5000}}"
        spec = f"limits: {{shared: {shared}}}\n"
        super().__init__(root, repository, spec, models=("digits",), replicas=3)


@pytest.fixture(scope="module")
def watched(shipped_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Three replicas of digits behind a gateway."""
    root = tmp_path_factory.mktemp("stack")
    made = Shared(root, shipped_repository)
    yield made
    made.stop()
    assert not (root / ".tritonkit" / "stack" / "state.json").exists()


def test_digits_through_tls_and_key(watched: Watched) -> None:
    """Over gRPC by the client, over REST by any; the answer says what time the server took."""
    with watched.client() as client:
        assert client.model("digits").predict(image=IMAGE)["label"][0, 0] == b"7"
        assert client.is_ready("digits")
    pixels = {"inputs": [{"name": "pixels", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]}
    answer, headers = watched.get("/v2/models/digits_network/infer", json.dumps(pixels).encode())
    assert len(answer["outputs"][0]["data"]) == 10
    assert headers["server-timing"].startswith("upstream;dur=")
    assert headers["x-request-id"]


def threads_of(part: StackPart) -> int:
    """The threads of a run of the network, as a replica has it configured."""
    with Client(part.address) as client:
        parameters = client.config("digits_network").parameters
        return int(parameters["intra_op_thread_count"].string_value)


def test_all_replicas_get_requests_each_on_its_cores(watched: Watched) -> None:
    """Triton's own counters say so, of each one; each network has threads for them, and keeps them when it is
    loaded again."""
    with Load(watched):
        pass
    replicas = [part for part in watched.stack.parts if part.name.startswith("replica")]
    assert len(replicas) == 3
    for part in replicas:
        with Client(part.address) as client:
            assert client.statistics("digits")[0].inference_count > 0
        assert os.sched_getaffinity(part.pid) == set(part.cores)
        assert threads_of(part) == len(part.cores)
    part = replicas[-1]
    reload = ("reload", "digits_network", "--address", part.address)
    key = find_key_file(watched.root, part.address)
    assert tritonkit(*reload, "--key-file", str(key)).returncode == 0
    assert threads_of(part) == len(part.cores)


def test_keys_are_taken_while_it_runs(watched: Watched) -> None:
    """A new one opens, one that is revoked does not, and no call of another fails meanwhile."""
    with Load(watched) as load:
        _, key = add_key(watched.gateway / "keys.json", "short", ("digits",))

        def opens() -> bool:
            with watched.client(key, retry=None, breaker=None) as client:
                try:
                    return bool(client.model("digits").predict(image=IMAGE)["label"][0, 0] == b"7")
                except TritonkitError:
                    return False

        eventually(opens, "a new key that opens")
        revoke_key(watched.gateway / "keys.json", "short")
        eventually(lambda: not opens(), "a revoked key that is refused")
    assert load.failures == []


def test_a_certificate_is_taken_while_it_runs(watched: Watched) -> None:
    """New connections get the new one; no call fails."""
    with Load(watched) as load:
        make_certificates(watched.gateway / "tls", ["localhost", "127.0.0.1"], days=30)
        ends = read_certificate(watched.gateway / "tls" / "server.crt").ends

        def served() -> bool:
            host, _, port = watched.stack.address.rpartition(":")
            text = ssl.get_server_certificate((host, int(port)), timeout=30)
            file = watched.gateway / "seen.crt"
            file.write_text(text)
            return read_certificate(file).ends == ends

        eventually(served, "the new certificate")
    assert load.failures == []


def test_no_call_fails_when_a_replica_is_killed(watched: Watched) -> None:
    """Its calls go to another one; it is started again and gets requests again."""
    before = watched.part("replica-0").pid
    with Load(watched) as load:
        os.kill(before, signal.SIGKILL)
        eventually(
            lambda: watched.part("replica-0").pid != before and watched.part("replica-0").state == "ready",
            "another process",
        )
    assert load.failures == []
    assert threads_of(watched.part("replica-0")) == len(watched.part("replica-0").cores)
    with Load(watched) as load, Client(watched.part("replica-0").address) as client:
        eventually(lambda: client.statistics("digits")[0].inference_count > 0, "requests again")
    assert load.failures == []


def test_no_call_fails_when_a_replica_hangs(watched: Watched) -> None:
    """It is found by its health checks and by its silence, and is back once it goes on."""
    pid = watched.part("replica-1").pid
    with Load(watched) as load:
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: watched.healthy() == 2, "it is left out")
            before = load.answers
            eventually(lambda: load.answers > before + 20 * CALLERS, "answers of the others")
        finally:
            os.kill(pid, signal.SIGCONT)
    assert load.failures == []


def test_the_gateway_is_started_again(watched: Watched) -> None:
    """Its clients connect again by themselves, once it is back."""
    before = watched.part("gateway").pid
    os.kill(before, signal.SIGKILL)
    eventually(
        lambda: watched.part("gateway").pid not in (0, before) and watched.part("gateway").state == "ready",
        "another gateway",
    )
    with watched.client() as client:
        assert client.model("digits").predict(image=IMAGE)["label"][0, 0] == b"7"


@pytest.mark.needs("redis")
def test_rates_are_shared_where_redis_is(watched: Shared, tmp_path: Path) -> None:
    """Without it requests pass, and that is said; the service between is started again when it dies."""
    before = watched.part("limiter")
    assert before.state == "ready"
    _, key = add_key(watched.gateway / "keys.json", "limited", rate_per_s=1000)

    def answers() -> bool:
        with watched.client(key, retry=None, breaker=None) as client:
            try:
                return bool(client.model("digits").predict(image=IMAGE)["label"][0, 0] == b"7")
            except TritonkitError:
                return False

    eventually(answers, "a key with a rate")
    eventually(
        lambda: answers() and any("passed without a decision" in message for message in watched.messages),
        "that rates are not shared",
    )
    redis = RedisServer(str(program("redis-server")), tmp_path)
    redis.port = watched.redis_port
    redis.start()
    try:
        eventually(lambda: answers() and redis.client.dbsize(), "a bucket in Redis")
        os.kill(before.pid, signal.SIGKILL)
        eventually(lambda: watched.part("limiter").pid not in (0, before.pid) and answers(), "another limiter")
        redis.client.flushall()
        eventually(lambda: answers() and redis.client.dbsize(), "another bucket in Redis")
    finally:
        redis.kill()


@pytest.mark.needs("promtool")
def test_prometheus_has_replicas_and_gateway(watched: Watched) -> None:
    """Latencies by model and key from the gateway, Triton's own figures from each replica."""
    address = watched.part("prometheus").address

    def result_of(query: str) -> list[Any]:
        url = f"{address}/api/v1/query?query={urllib.request.quote(query)}"  # type: ignore[attr-defined]
        with urllib.request.urlopen(url, timeout=30) as answer:
            result: list[Any] = json.loads(answer.read())["data"]["result"]
            return result

    eventually(lambda: len(result_of("sum by (instance) (nv_inference_count) > 0")) >= 2, "replicas")
    eventually(lambda: result_of('envoy_gateway_request_ms_count{model="digits",key="all"} > 0'), "the gateway")
    assert result_of('envoy_gateway_requests{model="digits",grpc_status="OK"} > 0')


@pytest.mark.needs("promtool")
def test_panels_of_the_gateway_have_data(watched: Watched) -> None:
    """Figures that only the gateway knows come from its own metrics: by model and key."""
    url = watched.part("prometheus").address
    names = {panel.name for panel in PANELS if panel.need is Need.gateway}
    assert len(names) > 4
    panels: dict[str, Any] = {}

    def all_there() -> bool:
        facts = json.loads(tritonkit("dash", "--prometheus", url, "--range", "2min", "--json").stdout)
        panels.update(facts["panels"])
        return all(panels[name]["lines"] for name in names)

    with Load(watched):
        eventually(all_there, "panels with data")
    assert panels["latency-p99"]["lines"]
