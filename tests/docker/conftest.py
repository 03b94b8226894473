"""A docker daemon, images made here, and the whole stack from a copy of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.parts import program
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import TLS, Secret

SERVER_USER = 10001
SERVER_IMAGE = os.environ.get("TRITONKIT_SERVER_IMAGE") or "tritonkit/server:0.1.0"
BUILDER_IMAGE = "tritonkit/builder:0.1.0"
TOOLS_IMAGE = "tritonkit/tools:0.1.0"
HOST = "triton"
"""A name under which a replica's REST is called from outside of its container."""
OWNER = 12345
"""A user of the checkout who is neither root nor the server's user."""


def run(*words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program, its output kept."""
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | variables)


def docker(*words: str) -> str:
    """A docker command that must succeed; its output."""
    done = run("docker", *words)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def compose_command() -> list[str]:
    """Compose v2 where it is, else docker-compose 1.29."""
    if run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"]


@pytest.fixture(scope="session")
def daemon() -> Iterator[None]:
    """A docker daemon that answers, started here where this is root and none runs."""
    if run("docker", "info").returncode == 0:
        yield
        return
    dockerd = program("dockerd")
    assert dockerd is not None
    with subprocess.Popen(
        [dockerd], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while run("docker", "info").returncode != 0:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail("dockerd did not start on this machine: run it by hand to see why")
                time.sleep(0.5)
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def settings(daemon: None, project: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Lines of `.env` for this machine: base images made here if possible."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return ""
    file = tmp_path_factory.mktemp("settings") / "env"
    done = run(str(project / "deploy/docker/local-base.sh"), "--env", str(file))
    assert done.returncode == 0, done.stderr
    return file.read_text()


@pytest.fixture(scope="session")
def server_image(settings: str, project: Path) -> str:
    """The server's image, built from this checkout (docker caches layers)."""
    build(settings, project, "triton")
    return SERVER_IMAGE


@pytest.fixture(scope="session")
def images(server_image: str, settings: str, project: Path) -> None:
    """The builder's image too."""
    build(settings, project, "builder")


@pytest.fixture(scope="session")
def tools_image(settings: str, project: Path) -> str:
    """The image that fetches models out of a store."""
    build(settings, project, "store-tools")
    return TOOLS_IMAGE


def build(settings: str, project: Path, service: str, **more: str) -> None:
    """Build the image of a service, with more variables than those of this machine."""
    variables = dict(line.split("=", 1) for line in settings.splitlines()) | more
    variables["COMPOSE_PROFILES"] = "kubernetes,gpu"
    done = run(*compose_command(), "build", service, cwd=project, **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@contextmanager
def serving(
    repository: Path, *options: str, words: Sequence[str] = (), ready: bool = True, image: str = SERVER_IMAGE
) -> Iterator[str]:
    """A container of the server's image as a pod has it; its name.

    Args:
        options: of `docker run`.
        words: for entry.py.
        ready: wait until it is.
        image: its name.
    """
    name = docker(
        "run",
        "--detach",
        "--read-only",
        "--tmpfs",
        "/tmp",  # noqa: S108
        "--shm-size",
        "128m",
        "--cap-drop",
        "ALL",
        *options,
        "--volume",
        f"{repository}:/models:ro",
        image,
        "--own-key",
        "--no-http",
        "--no-verify",
        *words,
    )
    try:
        if ready:
            eventually(lambda: not health(name), f"it is not ready: docker logs {name}")
        yield name
    finally:
        run("docker", "rm", "--force", name)


def health(name: str) -> str:
    """The reason why a container is not ready; empty if it is."""
    done = run("docker", "exec", name, "python3", "-IS", "/opt/tritonkit/health.py")
    return done.stdout + done.stderr + f"exit code {done.returncode}" if done.returncode else ""


def address_of(name: str) -> str:
    """The gRPC address of a container."""
    return docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", name) + ":8001"


@dataclass(frozen=True)
class Stack:
    """A running stack: its checkout, its name for compose, its ports on this machine."""

    checkout: Path
    name: str
    ports: dict[str, int]

    @property
    def gateway(self) -> str:
        """The gateway's gRPC address, as a URL."""
        return f"grpcs://localhost:{self.ports['GATEWAY_PORT']}"

    @property
    def tls(self) -> TLS:
        """TLS settings of the gateway's callers."""
        return TLS(ca=self.checkout / "deploy/gateway/tls/ca.crt")

    @property
    def api_key(self) -> Secret:
        """The key that was made for a start."""
        return Secret.from_file(self.checkout / "deploy/gateway/first.key")

    @property
    def grpc(self) -> str:
        """A replica's own gRPC address, which this machine reaches and no other."""
        return f"{self.addresses()[0]}:8001"

    @property
    def http(self) -> str:
        """The same replica's HTTP address, as a URL; it wants `HOST`."""
        return f"http://{self.addresses()[0]}:8000"

    @property
    def key_file(self) -> Path:
        """The admin key that the builder made."""
        return self.checkout / "deploy/docker/keys/admin-key"

    def addresses(self) -> list[str]:
        """Addresses of the running replicas."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return [docker("inspect", "-f", form, container) for container in self.containers("triton")]

    def compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A compose command of this stack."""
        return run(*compose_command(), "-p", self.name, *words, cwd=self.checkout)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers, also of those that have ended; always in one order."""
        label = f"label=com.docker.compose.project={self.name}"
        listed = docker(
            "ps",
            "--all",
            "--quiet",
            "--filter",
            label,
            "--filter",
            f"label=com.docker.compose.service={service}",
            "--filter",
            "label=com.docker.compose.oneoff=False",
        )
        return sorted(listed.split())

    def container(self, service: str = "triton") -> str:
        """The id of a service's first container."""
        return self.containers(service)[0]

    def state(self, template: str, service: str = "triton") -> str:
        """A part of what docker knows of a service's first container."""
        return docker("inspect", "-f", template, self.container(service))

    def inside(self, *words: str, service: str = "triton") -> subprocess.CompletedProcess[str]:
        """A program in a service's first container."""
        return run("docker", "exec", self.container(service), *words)

    def await_health(self, expected: str, service: str = "triton") -> None:
        """Wait for a health status of a service's first container, however many start with it."""

        def is_there() -> bool:
            return self.state("{{.State.Health.Status}}", service) == expected

        eventually(is_there, f"{service} {expected}", within_s=300.0)

    def ask(self, port: str, path: str) -> Any:
        """The JSON answer of a page of the stack on this machine."""
        url = f"http://127.0.0.1:{self.ports[port]}{path}"
        return json.loads(urllib.request.urlopen(url, timeout=PATIENCE_S).read())


def copy_checkout(project: Path, folder: Path, owner: int) -> Path:
    """The files under version control, or not ignored by it, as a fresh clone has them."""
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=project).stdout.splitlines()
    for name in listed:
        if (project / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project / name, folder / name)
    give(folder, owner)
    return folder


def give(folder: Path, owner: int) -> None:
    """Make a user the owner of a folder and all in it, where this user may."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner, owner)


@pytest.fixture(scope="session")
def stack(images: None, settings: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """`up` in a copy of the checkout that somebody else owns; gone without a trace at the end."""
    checkout = copy_checkout(project, tmp_path_factory.mktemp("checkout"), OWNER)
    # pytest's own folders are closed to others; a home folder is not, for its owner.
    for folder in list(checkout.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    names = ("GATEWAY_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "COLLECTOR_PORT")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    values = {
        **ports,
        "COMPOSE_PROFILES": "tracing",
        "TRITON_TRACE_URL": "http://collector:4318/v1/traces",
        # Of requests whose caller does not trace them: none.
        "TRITON_TRACE_RATE": 1_000_000,
    }
    (checkout / ".env").write_text(settings + "".join(f"{n}={v}\n" for n, v in values.items()))
    stack = Stack(checkout, f"tritonkit-test-{os.getpid()}", ports)
    try:
        done = stack.compose("up", "-d")
        assert done.returncode == 0, done.stderr[-3000:] + stack.compose("logs").stdout[-3000:]
        stack.await_health("healthy", "gateway")
        yield stack
    finally:
        stack.compose("down", "-v", "--timeout", "5")
