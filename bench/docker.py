"""The server's image in Docker, with the limits of a pod."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound, ServerStartError
from tritonkit.resources import shipped
from tritonkit.serve.command import python_run
from tritonkit.serve.manifests import container_needs
from tritonkit.serve.repository import read_models

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["IMAGE", "address", "command", "container", "docker", "give", "logs", "need_image", "published", "user"]

DOCKER = shutil.which("docker") or "docker"
IMAGE = os.environ.get("TRITONKIT_SERVER_IMAGE", "tritonkit/server:0.1.0")
_READY_S = 300.0
_USER = 10001


@contextmanager
def container(repository: Path, cores: int, *options: str, words: Sequence[str] = ()) -> Iterator[str]:
    """Yield the id of a ready container with the limits of a pod by `tritonkit deploy`: cores, memory, /dev/shm, a
    read-only root, a user without capabilities.

    Args:
        options: further options of `docker run`. words: arguments of entry.py.
    """
    needs = container_needs(read_models(repository), python_run(shipped("python_backends/backends")))
    name = command(
        DOCKER,
        "run",
        "--detach",
        "--init",
        "--read-only",
        "--tmpfs",
        "/tmp",  # noqa: S108
        *user(),
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges:true",
        f"--cpus={cores}",
        "--health-interval=5s",  # as the readiness probe's
        f"--memory={needs.memory_bytes}",
        f"--shm-size={needs.shm_bytes}",
        *options,
        "--volume",
        f"{repository}:/models:ro",
        IMAGE,
        "--own-key",
        *words,
    ).strip()
    try:
        _await_ready(name)
        yield name
    finally:
        docker("rm", "--force", name)


def user() -> list[str]:
    """Options that let a container read the calling user's files."""
    if os.geteuid() == 0:
        return ["--user", f"{_USER}:{_USER}"]
    return ["--user", f"{os.getuid()}:{os.getgid()}"]


def give(folder: Path) -> None:
    """Let the container's user write into a folder."""
    if os.geteuid() == 0:
        os.chown(folder, _USER, _USER)


def address(name: str) -> str:
    """The address of a container's gRPC endpoint, from this machine."""
    return command(DOCKER, "inspect", "-f", "{{.NetworkSettings.IPAddress}}", name).strip() + ":8001"


def published(name: str) -> str:
    """The published address of that port."""
    return command(DOCKER, "port", name, "8001").split()[0]


def logs(name: str) -> str:
    """The output of a container."""
    written = docker("logs", name)
    return written.stdout + written.stderr


def _await_ready(name: str) -> None:
    deadline = time.monotonic() + _READY_S
    health = ("exec", name, "python3", "-IS", "/opt/tritonkit/health.py")
    while docker(*health).returncode != 0:
        if time.monotonic() > deadline or not _running(name):
            raise ServerStartError(
                f"image {IMAGE}", found="its container did not become ready", details=logs(name)[-2000:]
            )
        time.sleep(0.5)


def _running(name: str) -> bool:
    return docker("inspect", "-f", "{{.State.Running}}", name).stdout.strip() == "true"


def need_image() -> None:
    """Raise `ServerNotFound` if docker, its daemon or the image is missing."""
    todo = "apt-get install docker.io docker-compose; docs/docker.md says how to build the images"
    try:
        done = docker("image", "inspect", IMAGE)
    except FileNotFoundError:
        raise ServerNotFound("docker", found="it is not installed", todo=todo) from None
    if done.returncode != 0:
        missing = "No such image" in done.stderr
        raise ServerNotFound(
            f"image {IMAGE}" if missing else "docker",
            found="it was not built" if missing else "its daemon does not answer",
            todo="docker compose build triton" if missing else "start it: systemctl start docker",
            details=done.stderr.strip(),
        )


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a docker command, whatever its exit code."""
    return subprocess.run([DOCKER, *words], capture_output=True, text=True, check=False)


def command(*words: str, env: Mapping[str, str] | None = None) -> str:
    """The output of a program.

    Raises:
        ServerStartError: it failed.
    """
    done = subprocess.run(list(words), capture_output=True, text=True, timeout=600, env=env, check=False)
    if done.returncode != 0:
        raise ServerStartError(
            " ".join(words[:3]), found=f"it ended with exit code {done.returncode}", details=done.stderr[-2000:]
        )
    return done.stdout
