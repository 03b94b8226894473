"""Alerts provoked for real: a Triton with disk and shared memory of its own, a gateway, a Prometheus with the rules.

Rules are those of production with all their times sixty times as short: windows, and for how long a fault must last.
What `test_observe.py` provokes (burn rates, errors, replicas that are gone) is not here again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.parts import SERVER
from tests.ports import free_ports
from tests.server.at_once import at_once
from tests.server.models import ECHO, VECTOR, ModelText, write_repository
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import ClientError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.gateway import GatewaySpec, Places, Upstream, gateway_command, write_clusters, write_gateway
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.observe import ALERTS, Pace, Prometheus, recording, rules_text
from tritonkit.serve.core.rest import find_envoy
from tritonkit.serve.core.stubs import find_stubs
from tritonkit.serve.core.supervisor import run_prefix

pytestmark = [pytest.mark.needs("envoy", "prometheus", "mount"), pytest.mark.slow, pytest.mark.timeout(900)]

MINUTE_S = 1 / 60
"""The fraction of an alert's minute that lasts here."""
DISK_MIB, SHARED_MIB = 16, 256
PYTHON = f'backend: "python"\n{VECTOR}'
DYING = (
    ECHO
    + """
    def initialize(self, args):
        import os
        if os.path.exists("MARK"):
            raise RuntimeError("as asked for")
"""
)
"""It cannot be loaded while a file is there."""
OWN_DISKS = """mount -t tmpfs -o size={shared}m tmpfs /dev/shm
mount -t tmpfs -o size={disk}m tmpfs "$1" && cp -r "$0"/. "$1" && shift 1 && exec "$@"
"""


@dataclass(frozen=True)
class Scene:
    """The scene: a server, a gateway before it, and a Prometheus that watches them."""

    server: subprocess.Popen[bytes]
    grpc: str
    metrics: str
    repository: Path
    mark: Path
    gateway: subprocess.Popen[bytes]
    gateway_metrics: str
    places: Places
    source: Prometheus

    def inside(self, folder: Path) -> Path:
        """A folder as the server sees it."""
        return Path(f"/proc/{self.server.pid}/root{folder}")

    def firing(self) -> set[tuple[str, str]]:
        """Alerts, and what each is about."""
        names = ("model", "envoy_cluster_name", "instance")
        return {
            (alert.name, next(alert.labels[name] for name in names if alert.labels.get(name)))
            for alert in self.source.firing()
        }

    def fires(self, name: str, about: str) -> None:
        """Wait for an alert."""
        eventually(lambda: (name, about) in self.firing(), f"{name}, about {about}: {self.firing()}")

    def says(self, line: str) -> bool:
        """Whether the server's metrics have a line that ends so."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            return f"tritonkit_{line}\n" in answer.read().decode()

    def call(self, model: str, seconds: float = 0.0, item: float = 0.0) -> None:
        """One call that takes so long; whether it is answered is not what is tested."""
        with contextlib.suppress(ClientError), Client(self.grpc, retry=None, breaker=None, timeout_s=120.0) as client:
            client.model(model).predict(x=np.array([seconds, item, 0, 0], np.float32))


@contextlib.contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End it at the end of the block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait(90)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """All of it. The gateway's certificate is short, one of its replicas is not there, and REST has that one alone."""
    root = tmp_path_factory.mktemp("alerts")
    mark, repository = root / "mark", root / "repository"
    repository.mkdir()
    (root / "models").mkdir()
    (root / ".venv-server").symlink_to(SERVER)
    written = write_repository(
        root / "written",
        {
            "serial": ModelText(PYTHON),
            "stalled": ModelText(PYTHON),
            "cached": ModelText(f"{PYTHON}response_cache {{ enable: true }}\n"),
            "dying": ModelText(PYTHON, DYING.replace("MARK", str(mark))),
        },
    )
    with contextlib.ExitStack() as stack:
        ports = free_ports(4)
        grpc, metrics, gateway_metrics = (f"127.0.0.1:{port}" for port in ports[:3])
        script = OWN_DISKS.format(shared=SHARED_MIB, disk=DISK_MIB)
        words = [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            script,
            str(written),
            str(repository),
            sys.executable,
            "-m",
            "tritonkit.cli",
            "serve",
            "--repository",
            str(repository),
            "--root",
            str(root),
            "--grpc-port",
            str(ports[0]),
            "--metrics-port",
            str(ports[1]),
        ]
        log = stack.enter_context((root / "log").open("wb"))
        server = stack.enter_context(ending(subprocess.Popen(words, stdout=log, stderr=log)))
        places = gateway_places(root, ports[3], gateway_metrics)
        gateway = stack.enter_context(ending(start_gateway(root, places, grpc)))

        def ready() -> bool:
            assert server.poll() is None, (root / "log").read_text()
            with Client(grpc, retry=None, breaker=None) as client:
                return client.is_ready("dying")

        eventually(ready, "the server")
        rules = rules_text(ALERTS, Pace(MINUTE_S), interval_s=1)
        url = stack.enter_context(recording([metrics], gateway_metrics, rules=rules))
        source = Prometheus(url)
        stack.callback(source.close)
        yield Scene(server, grpc, metrics, repository, mark, gateway, gateway_metrics, places, source)


def gateway_places(root: Path, port: int, metrics: str) -> Places:
    """A gateway's files, with a certificate that ends soon."""
    folder, run = root / "gateway", root / "run"
    run.mkdir(mode=0o700)
    make_certificates(folder / "tls", ["127.0.0.1"], days=5)
    return Places(folder, folder / "rendered", run / "clusters.json", None, port, metrics)


def start_gateway(root: Path, places: Places, grpc: str) -> subprocess.Popen[bytes]:
    """An Envoy before the server, and before a replica that is not there."""
    envoy = find_envoy(SERVER)
    assert envoy is not None
    replicas = [Upstream("here", grpc), Upstream("gone", "127.0.0.1:1", "127.0.0.1:1")]
    config = write_gateway(GatewaySpec(), places, ["serial"], replicas, envoy)
    run = places.clusters.parent
    with (root / "gateway.log").open("wb") as log:
        made = subprocess.Popen(gateway_command(envoy, config.name), cwd=run, stdout=log, stderr=log)
    eventually(GatewayAdmin(run).ready, "the gateway")
    return made


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """A file system with a twentieth of its space free."""
    space = os.statvfs(folder)
    size = (space.f_bavail - space.f_blocks // 20) * space.f_frsize
    file = folder / "filler"
    with file.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, size)
    try:
        yield
    finally:
        file.unlink()


def test_a_disk_and_shared_memory_that_are_nearly_full(scene: Scene) -> None:
    """Both are told of the server that has them."""
    assert {name for name, _ in scene.firing()} <= {"GatewayReplicaOut", "GatewayHasNoReplica", "CertificateEnds"}
    with filled(scene.inside(scene.repository)), filled(scene.inside(Path("/dev/shm"))):  # noqa: S108
        scene.fires("SharedMemoryNearlyFull", scene.metrics)
        scene.fires("DiskNearlyFull", scene.metrics)
    eventually(lambda: ("DiskNearlyFull", scene.metrics) not in scene.firing(), "its end")


def test_a_queue_that_grows_and_runs_of_one(scene: Scene) -> None:
    """More requests than a model without a batcher can run, which could run four together."""
    over = threading.Event()
    with ThreadPoolExecutor(400) as pool:

        def more() -> None:
            while not over.wait(0.1):
                pool.submit(scene.call, "serial", 0.15)

        thread = threading.Thread(target=more)
        thread.start()
        try:
            scene.fires("QueueGrowing", "serial")
            scene.fires("BatchOfOneUnderLoad", "serial")
        finally:
            over.set()
            thread.join()
            pool.shutdown(cancel_futures=True)
    assert ("ModelStalled", "serial") not in scene.firing()


def test_a_model_that_answers_nobody(scene: Scene) -> None:
    """Requests that take long, and others that wait for them."""

    def caller(_: int, ended: threading.Event) -> None:
        while not ended.is_set():
            scene.call("stalled", 5.0)

    with at_once(3, caller):
        scene.fires("ModelStalled", "stalled")


def test_a_cache_that_has_no_hits_any_more(scene: Scene) -> None:
    """Equal requests had hits; others have none, as with a cache that is away."""
    over = threading.Event()
    same = threading.Event()

    def caller() -> None:
        number = 0.0
        while not over.wait(0.1):
            number += 0.0 if same.is_set() else 1.0
            scene.call("cached", item=number)

    same.set()
    thread = threading.Thread(target=caller)
    thread.start()
    try:
        eventually(lambda: hits(scene) > 50, "hits")
        same.clear()
        scene.fires("CacheDown", "cached")
    finally:
        over.set()
        thread.join()


def hits(scene: Scene) -> int:
    """Answers from the cache so far."""
    with Client(scene.grpc) as client:
        return client.statistics("cached")[0].cache_hit_count


def test_replicas_that_the_gateway_leaves_out(scene: Scene) -> None:
    """One of two over gRPC; the only one over REST. With the others alone nothing is left out."""
    scene.fires("GatewayReplicaOut", "grpc")
    scene.fires("GatewayHasNoReplica", "rest")
    assert ("GatewayHasNoReplica", "grpc") not in scene.firing()
    write_clusters(GatewaySpec(), scene.places, [Upstream("here", scene.grpc)])
    eventually(lambda: ("GatewayReplicaOut", "grpc") not in scene.firing(), "its end")


def test_a_python_process_that_dies_and_stays_dead(scene: Scene) -> None:
    """After two deaths within half an hour it keeps dying; once its model cannot be loaded again, it is dead."""
    for deaths in (1, 2):
        kill_stub("dying")
        eventually(lambda: scene.says(f'stub_deaths_total{{model="dying"}} {deaths}'), "a death")  # noqa: B023
        if deaths == 2:  # the alert goes as the first death gets old, however long a model takes to load
            scene.fires("StubKeepsDying", "dying")
        eventually(lambda: scene.says('stub_up{model="dying"} 1'), "its model again")
    scene.mark.touch()
    try:
        kill_stub("dying")
        scene.fires("StubDead", "dying")
    finally:
        scene.mark.unlink()


def kill_stub(model: str) -> None:
    """The only one there is, once it is there."""

    def there() -> list[int]:
        return [stub.pid for stub in find_stubs(run_prefix()) if stub.model == model]

    (before,) = eventually(there, "a Python process")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: before not in there())


def test_a_certificate_that_ends_soon(scene: Scene) -> None:
    """The gateway says in how many days; after an hour of that, a minute here, somebody is told."""
    scene.fires("CertificateEnds", scene.gateway_metrics)


def test_a_gateway_that_is_gone(scene: Scene) -> None:
    """The last test: it stays so."""
    scene.gateway.kill()
    scene.fires("GatewayDown", scene.gateway_metrics)
