"""A docker daemon, images made here, and the whole stack from a copy of this checkout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parts import program

SERVER_USER = 10001
SERVER_IMAGE = "tritonkit/server:0.1.0"
OWNER = 12345
"""A user of the checkout who is neither root nor the server's user."""


def run(*words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program, its output kept."""
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | variables
    )


def docker(*words: str) -> str:
    """A docker command that must succeed; its output."""
    done = run("docker", *words)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def free_port() -> int:
    """A port nobody has now."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


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
        [dockerd],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
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
    """What a `.env` must say on this machine: bases made here where that is possible."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return ""
    file = tmp_path_factory.mktemp("settings") / "env"
    done = run(str(project / "deploy/docker/local-base.sh"), "--env", str(file))
    assert done.returncode == 0, done.stderr
    return file.read_text()


@pytest.fixture(scope="session")
def images(settings: str, project: Path) -> None:
    """The images of the builder and the server, built from this checkout (docker caches layers)."""
    variables = dict(line.split("=", 1) for line in settings.splitlines())
    done = run(*compose_command(), "build", "builder", "triton", cwd=project, **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@dataclass(frozen=True)
class Stack:
    """A running stack: its checkout, its name for compose, its ports on this machine."""

    checkout: Path
    name: str
    ports: dict[str, int]

    @property
    def grpc(self) -> str:
        """Triton's gRPC address."""
        return f"127.0.0.1:{self.ports['TRITON_GRPC_PORT']}"

    @property
    def http(self) -> str:
        """Triton's HTTP address, as a URL."""
        return f"http://127.0.0.1:{self.ports['TRITON_HTTP_PORT']}"

    @property
    def key_file(self) -> Path:
        """The key that the builder made."""
        return self.checkout / "deploy/docker/keys/admin-key"

    def compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A compose command of this stack."""
        return run(*compose_command(), "-p", self.name, *words, cwd=self.checkout)

    def container(self, service: str = "triton") -> str:
        """The id of a service's container, also of one that has ended."""
        return self.compose("ps", "-a", "-q", service).stdout.strip()

    def state(self, template: str, service: str = "triton") -> str:
        """A part of what docker knows of a container."""
        return docker("inspect", "-f", template, self.container(service))

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A program in the server's container."""
        return run("docker", "exec", self.container(), *words)

    def await_health(self, wanted: str, within_s: float) -> float:
        """Wait for a health status; the seconds it took."""
        start = time.monotonic()
        while (health := self.state("{{.State.Health.Status}}")) != wanted:
            assert time.monotonic() - start < within_s, f"{health}, not {wanted}"
            time.sleep(0.2)
        return time.monotonic() - start


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
def stack(
    images: None, settings: str, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """`up` in a copy of the checkout that somebody else owns; gone without a trace at the end."""
    checkout = copy_checkout(project, tmp_path_factory.mktemp("checkout"), OWNER)
    # pytest's own folders are closed to others; a home folder is not, for its owner.
    for folder in list(checkout.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    names = ("TRITON_GRPC_PORT", "TRITON_HTTP_PORT", "TRITON_METRICS_PORT", "PROMETHEUS_PORT")
    ports = {name: free_port() for name in names}
    (checkout / ".env").write_text(settings + "".join(f"{n}={p}\n" for n, p in ports.items()))
    stack = Stack(checkout, f"tritonkit-test-{os.getpid()}", ports)
    try:
        done = stack.compose("up", "-d")
        assert done.returncode == 0, done.stderr[-3000:] + stack.compose("logs").stdout[-3000:]
        stack.await_health("healthy", 300)
        yield stack
    finally:
        stack.compose("down", "-v", "--timeout", "5")
