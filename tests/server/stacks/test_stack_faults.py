"""Parts behind a gateway die, are slow or are cut off: no call with the client's defaults fails."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.models import VECTOR, ModelText, write_repository
from tests.server.networks import network, run, served_in
from tests.server.watched import Load, Watched
from tests.waiting import eventually
from tritonkit.client import TLS, AsyncClient, Cache, Client, Retry
from tritonkit.errors import TritonkitError
from tritonkit.operate.gateway import GatewaySpec, Places, Upstream, write_clusters
from tritonkit.operate.gateway.bootstrap import CLUSTERS
from tritonkit.operate.gateway.spec import GatewayLimits
from tritonkit.serve.core.stubs import find_stubs
from tritonkit.serve.core.supervisor import children, run_prefix
from tritonkit.serve.core.unix_http import Admin

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow, pytest.mark.timeout(900)]

DECLARED = 'parameters { key: "tritonkit.idempotent" value { string_value: "true" } }\n'
"""A model whose calls may run twice, as those of the models that ship."""
MODELS = {"echo": ModelText(f'backend: "python"\n{VECTOR}{DECLARED}dynamic_batching {{ }}\n')}


SPEC = "limits: {header_s: 60}\n"
"""Time for headers to come: for all of a test whose callers never send the rest of theirs."""


def echo(client: Client) -> None:
    """One call, of an item of its own."""
    x = np.array([[0, *np.random.default_rng().random(3)]], np.float32)
    np.testing.assert_array_equal(client.model("echo").predict(x=x)["y"], x)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Three replicas of a model in Python behind a gateway, with Prometheus and Redis where they are."""
    root = tmp_path_factory.mktemp("faults")
    made = Watched(root, write_repository(root / "model_repository", MODELS), SPEC, replicas=3)
    yield made
    made.stop()


def answered(address: str) -> int:
    """The requests of one replica so far."""
    with Client(address) as client:
        return client.statistics("echo")[0].inference_count


def again(watched: Watched, name: str, before: int) -> None:
    """Wait until a part runs as another process."""
    eventually(
        lambda: watched.part(name).pid not in (0, before) and watched.part(name).state == "ready", f"another {name}"
    )


def test_no_call_fails_when_a_python_process_is_killed(watched: Watched) -> None:
    """Triton fails what waits for it, a second a run; those calls are made again, and the model is loaded again."""
    server = watched.part("replica-0").pid
    stub = next(one for one in find_stubs(run_prefix()) if one.pid in children(server))
    with Load(watched, echo) as load:
        os.kill(stub.pid, signal.SIGKILL)
        eventually(lambda: any("stub back" in message for message in watched.messages), "the model loaded again")
    assert load.failures == []
    assert watched.part("replica-0").pid == server


@pytest.mark.needs("ss")
def test_no_call_fails_when_connections_to_replicas_are_cut(watched: Watched) -> None:
    """All those that the gateway has, three times: their calls are made again on new ones."""
    ports = [part.address.rpartition(":")[2] for part in watched.stack.parts if part.cores]
    assert len(ports) == 3
    with Load(watched, echo) as load:
        for _ in range(3):
            before = watched.stat("cluster.grpc.upstream_cx_destroy")
            for port in ports:
                words = ["ss", "--kill", "--tcp", "dst", "127.0.0.1", "dport", "=", port]
                subprocess.run(words, capture_output=True, check=False)
            eventually(lambda: watched.stat("cluster.grpc.upstream_cx_destroy") > before)  # noqa: B023
            answers = load.answers
            eventually(lambda: load.answers > answers + 100, "answers on new ones")  # noqa: B023
    assert load.failures == []


@pytest.mark.needs("redis")
def test_no_call_fails_when_redis_is_killed(watched: Watched) -> None:
    """It holds answers for clients: without it each call goes to a replica."""
    part = watched.part("redis")
    with Load(watched, echo, cache=Cache(redis=part.address)) as load:
        os.kill(part.pid, signal.SIGKILL)
        again(watched, "redis", part.pid)
    assert load.failures == []


@pytest.mark.needs("prometheus")
def test_no_call_fails_when_prometheus_is_killed(watched: Watched) -> None:
    """It only looks, and looks again once it is back."""
    part = watched.part("prometheus")
    with Load(watched, echo) as load:
        os.kill(part.pid, signal.SIGKILL)
        again(watched, "prometheus", part.pid)
    assert load.failures == []


def test_a_replica_that_hangs_is_left_out_and_taken_back(watched: Watched) -> None:
    """The health checks find it, and find that it is back."""
    pid = watched.part("replica-1").pid
    with Load(watched, echo) as load:
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: watched.healthy() == 2, "it is left out")
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: watched.healthy() == 3, "it is taken back")
        before = answered(watched.part("replica-1").address)
        eventually(lambda: answered(watched.part("replica-1").address) > before + 10, "requests again")
    assert load.failures == []


def test_a_replica_that_is_slow_gets_fewer(watched: Watched) -> None:
    """Stopped nine tenths of the time, never for so long that it counts as gone: the others take its share."""
    parts = [watched.part(f"replica-{number}") for number in range(3)]
    over = threading.Event()

    def slowly() -> None:
        while not over.is_set():
            os.kill(parts[2].pid, signal.SIGSTOP)
            over.wait(0.45)
            os.kill(parts[2].pid, signal.SIGCONT)
            over.wait(0.05)

    thread = threading.Thread(target=slowly)
    before = [answered(part.address) for part in parts]
    with Load(watched, echo) as load:
        thread.start()
        answers = load.answers
        try:
            eventually(lambda: load.answers > answers + 2000, "answers meanwhile")
        finally:
            over.set()
            thread.join()
        shares = [answered(part.address) - was for part, was in zip(parts, before, strict=True)]
    assert load.failures == []
    assert shares[2] < min(shares[:2]) / 2, shares


def test_calls_bridge_the_death_of_the_gateway(watched: Watched) -> None:
    """Nobody else is there to ask: a caller who wants no failure has to wait for it, and may say so."""
    pid = watched.part("gateway").pid
    patient = Retry(attempts=100, budget=1.0, first_s=0.1, longest_s=0.5)
    with Load(watched, echo, retry=patient, breaker=None, timeout_s=60.0) as load:
        eventually(lambda: load.answers > 1000, "answers that pay for being patient")
        os.kill(pid, signal.SIGKILL)
        again(watched, "gateway", pid)
    assert load.failures == []


def test_the_death_of_the_gateway_with_the_defaults(watched: Watched) -> None:
    """Calls fail as unavailable, and go on by themselves once it is back."""
    pid = watched.part("gateway").pid
    with Load(watched, echo) as load:
        os.kill(pid, signal.SIGKILL)
        again(watched, "gateway", pid)
    kinds = {failure.partition(":")[0] for failure in load.failures}
    assert kinds <= {"ServerUnavailable", "CircuitOpen"}, load.failures[:3]


def test_no_call_fails_while_a_model_is_away_at_one_replica(watched: Watched) -> None:
    """It refuses immediately, and so has the fewest requests in flight: all of them are sent to another one."""
    folder = next((watched.gateway.parent.parent / ".tritonkit" / "run").glob("*/admin-key")).parent
    admin = Admin(folder, (folder / "admin-key").read_text().strip(), 60.0)
    with Load(watched, echo) as load:
        admin.unload("echo")
        before = load.answers
        eventually(lambda: load.answers + len(load.failures) > before + 500, "answers of the others")
        admin.load("echo")
    assert load.failures == []


def limited(watched: Watched, spec: GatewaySpec, *more: Upstream) -> None:
    """Tell the gateway its replicas again, with a spec's limits."""
    root = watched.gateway.parent.parent
    clusters = root / ".tritonkit" / "stack" / "gateway" / CLUSTERS
    places = Places(watched.gateway, watched.gateway / "rendered", clusters, None, 0)
    near = [Upstream(part.name, part.address) for part in watched.stack.parts if part.cores]
    write_clusters(spec, places, [*near, *more])


def test_three_times_the_capacity(watched: Watched) -> None:
    """Requests beyond the limit are refused in words, no more than the limit are under way, the rest are answered."""
    work_s, per_s, seconds = 0.05, 60.0, 10.0
    limits = GatewayLimits(capacity_per_s=per_s / 3, target_ms=1000)
    most = 3 * limits.requests_per_replica
    assert most == 30
    tls = TLS(ca=str(watched.gateway / "tls" / "ca.crt"))
    ended: Counter[str] = Counter()
    active: list[int] = []

    async def call(model: Any) -> None:
        try:
            await model.predict(x=np.array([[work_s, 0, 0, 0]], np.float32))
            ended["answered"] += 1
        except TritonkitError as error:
            ended[f"{type(error).__name__}: {error.found}"] += 1

    async def story() -> None:
        async with (
            AsyncClient(
                f"grpcs://{watched.stack.address}",
                tls=tls,
                api_key=watched.key,
                retry=None,
                breaker=None,
                timeout_s=60.0,
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            model = await client.model("echo")
            for number in range(round(3 * per_s * seconds)):
                group.create_task(call(model))
                if number % 20 == 0:
                    active.append(watched.stat("cluster.grpc.upstream_rq_active"))
                await asyncio.sleep(1 / (3 * per_s))

    limited(watched, GatewaySpec(limits=limits))
    eventually(lambda: watched.stat("cluster.grpc.circuit_breakers.default.remaining_rq") == most)
    try:
        asyncio.run(story())
    finally:
        limited(watched, GatewaySpec())
    refused = sum(count for what, count in ended.items() if what.startswith("Overloaded"))
    assert set(ended) - {"answered"} == {outcome for outcome in ended if "overflow" in outcome}, ended
    assert refused > 100
    assert ended["answered"] > per_s * seconds / 3
    # Workers of the gateway that look at the same moment may both find room for one more.
    assert max(active) <= most + (os.cpu_count() or 1)
    with Load(watched, echo) as load:
        pass
    assert load.failures == []


@pytest.mark.needs("namespaces")
def test_a_replica_that_is_cut_off(watched: Watched, tmp_path: Path) -> None:
    """Its cable goes, without a word: its calls are made again elsewhere, and it is taken back with its cable."""
    repository = write_repository(tmp_path / "model_repository", MODELS)
    with network() as net, served_in(net, tmp_path, repository, "echo") as address:
        far = Upstream("far", address)
        with Load(watched, echo) as load:
            limited(watched, GatewaySpec(), far)
            eventually(lambda: watched.healthy() == 4, "it is taken")
            eventually(lambda: answered(far.grpc) > 10, "requests for it")
            run("ip", "-n", net.name, "link", "set", net.device, "down")
            eventually(lambda: watched.healthy() == 3, "it is left out")
            before = load.answers
            eventually(lambda: load.answers > before + 100, "answers meanwhile")
            run("ip", "-n", net.name, "link", "set", net.device, "up")
            eventually(lambda: watched.healthy() == 4, "it is taken back")
            requests = answered(far.grpc)
            eventually(lambda: answered(far.grpc) > requests + 10, "requests again")
            limited(watched, GatewaySpec())
            eventually(lambda: watched.healthy() == 3, "it is given back")
        assert load.failures == []


@pytest.mark.needs("namespaces")
def test_connections_whose_callers_vanish(watched: Watched) -> None:
    """The gateway hears nothing of their end: others are served, and it asks after them within a minute."""
    host, _, port = watched.stack.address.rpartition(":")
    context = ssl.create_default_context(cafile=str(watched.gateway / "tls" / "ca.crt"))
    gone: list[str] = []
    rules: list[list[str]] = []
    try:
        for _ in range(20):
            plain = socket.create_connection((host, int(port)), 60)
            with context.wrap_socket(plain, server_hostname=host) as caller:
                caller.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-")
                gone.append(str(caller.getsockname()[1]))
                for end in ("--sport", "--dport"):
                    rules.append(["-o", "lo", "-p", "tcp", end, gone[-1], "-j", "DROP"])
                    run("iptables", "-w", "-I", "OUTPUT", *rules[-1])
        with Load(watched, echo) as load:
            pass
        assert load.failures == []
        words = ["ss", "-tnoH", "state", "established", "sport", "=", port]
        rows = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        kept = [row for row in rows if any(f":{number} " in row for number in gone)]
        # Those whose headers never come are ended before that: see header_s.
        assert kept
        assert all("timer:(keepalive," in row or "timer:(on," in row for row in kept), kept
    finally:
        for rule in rules:
            run("iptables", "-w", "-D", "OUTPUT", *rule)
