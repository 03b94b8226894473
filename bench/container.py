"""What the container costs: calls of it over calls of the embedded server.

Promised for the container's own address, which clients in other containers use. A port that docker
publishes on loopback is one more copy of every byte, by docker's userland proxy: shown beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report import Ratio, Report
from tritonkit.client import Client
from tritonkit.errors import ServerNotFound, ServerStartError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.setting import Setting

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
DOCKER = shutil.which("docker") or "docker"
IMAGE = os.environ.get("TRITONKIT_SERVER_IMAGE", "tritonkit/server:0.1.0")
CALLERS = (1, 32)
SENTENCE = "Where is the parcel that I ordered two weeks ago?"
AT_MOST_P50, AT_LEAST_RATE = 1.10, 0.92
_READY_S = 120.0


def run(setting: Setting) -> Report:
    """Latency and throughput of the container over the embedded server's, same repository, in turns."""
    from tritonkit.serve import serve

    ports: dict[str, Any] = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
    ratios: list[Ratio] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _container(setting.repository, Path(folder)) as containers,
        serve(setting.repository, **ports, root=ROOT) as embedded,
    ):
        addresses = {**containers, "embedded": embedded.grpc}
        for model, item in _items(Path(folder)).items():
            rounds = [
                _round(setting, addresses, model, item, turn) for turn in range(setting.rounds)
            ]
            ratios += _ratios(model, rounds)
    return Report(
        "container",
        "calls of the container, and of its port published on loopback, over the embedded server's, "
        "in turns; latencies in ms and rates per s, of this machine and this run",
        ratios,
    )


def _items(folder: Path) -> dict[str, Path]:
    """What clients call, with a real item each."""
    text = folder / "sentence"
    text.write_text(SENTENCE)
    return {
        "digits": ROOT / "models" / "digits" / "examples" / "seven.png",
        "sentences": text,
    }


def _round(
    setting: Setting, addresses: Mapping[str, str], model: str, item: Path, turn: int
) -> dict[tuple[str, int], dict[str, Any]]:
    """Each server under each load once; who is first changes from round to round."""
    order = sorted(addresses, reverse=turn % 2 == 1)
    return {
        (server, callers): _load(addresses[server], model, callers, setting.seconds, item)
        for callers in CALLERS
        for server in order
    }


def _load(address: str, model: str, callers: int, seconds: float, item: Path) -> dict[str, Any]:
    words = [address, model, f"--concurrency={callers}", f"--seconds={seconds}"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = _command(
        sys.executable, "-m", "bench.load", *words, f"--item={item}",
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    measured: dict[str, Any] = json.loads(done)
    if measured["failures"]:
        raise ServerStartError(
            f"model {model} at {address}", found=f"{measured['failures']} requests failed",
            details=measured["first_failure"],
        )  # fmt: skip
    return measured


def _ratios(model: str, rounds: Sequence[Mapping[Any, Any]]) -> list[Ratio]:
    alone, many = CALLERS
    made = []
    for server, promised in (("container", True), ("published port", False)):
        made += [
            Ratio(
                f"{model}, {server}, p50, {alone} caller",
                _quotients(rounds, server, "p50_ms", alone),
                at_most=AT_MOST_P50 if promised else None,
                facts=_facts(rounds, server, "p50_ms", alone),
            ),
            Ratio(
                f"{model}, {server}, throughput, {many} callers",
                _quotients(rounds, server, "per_s", many),
                at_least=AT_LEAST_RATE if promised else None,
                facts=_facts(rounds, server, "per_s", many),
            ),
        ]
    return made


def _quotients(
    rounds: Sequence[Mapping[Any, Any]], server: str, key: str, callers: int
) -> list[float]:
    return [each[server, callers][key] / each["embedded", callers][key] for each in rounds]


def _facts(
    rounds: Sequence[Mapping[Any, Any]], server: str, key: str, callers: int
) -> dict[str, Any]:
    return {
        name: round(statistics.median(each[name, callers][key] for each in rounds), 2)
        for name in (server, "embedded")
    }


@contextmanager
def _container(repository: Path, folder: Path) -> Iterator[dict[str, str]]:
    """A container of the server's image as compose runs it; its two gRPC addresses."""
    _need_image()
    key = folder / "admin-key"
    key.write_text("a-key-of-this-bench-alone")
    key.chmod(0o440)
    # Readable by the image's user without being everybody's.
    os.chown(key, -1, 10001) if os.geteuid() == 0 else key.chmod(0o400)
    folder.chmod(0o711)
    user = [] if os.geteuid() == 0 else ["--user", f"{os.getuid()}:{os.getgid()}"]
    name = _command(
        DOCKER, "run", "--detach", "--rm", "--init", "--read-only", "--tmpfs", "/tmp",  # noqa: S108
        "--cap-drop", "ALL", "--shm-size", "1g", *user, "--publish", "127.0.0.1::8001",
        "--volume", f"{repository}:/models:ro", "--volume", f"{key}:/handover/admin-key:ro", IMAGE,
    ).strip()  # fmt: skip
    try:
        published = _command(DOCKER, "port", name, "8001").split()[0]
        own = _command(DOCKER, "inspect", "-f", "{{.NetworkSettings.IPAddress}}", name).strip()
        _await_ready(name, published)
        yield {"container": f"{own}:8001", "published port": published}
    finally:
        _docker("kill", name)


def _await_ready(name: str, address: str) -> None:
    deadline = time.monotonic() + _READY_S
    with Client(address, timeout_s=5) as client:
        while not client.is_ready():
            if time.monotonic() > deadline or not _running(name):
                logs = _docker("logs", name)
                raise ServerStartError(
                    f"image {IMAGE}", found="its container did not become ready",
                    details=(logs.stdout + logs.stderr)[-2000:],
                )  # fmt: skip
            time.sleep(0.2)


def _running(name: str) -> bool:
    return _docker("inspect", "-f", "{{.State.Running}}", name).stdout.strip() == "true"


def _need_image() -> None:
    """ServerNotFound where there is no docker, no daemon or no image."""
    todo = "apt-get install docker.io docker-compose; docs/docker.md says how to build the images"
    try:
        done = _docker("image", "inspect", IMAGE)
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


def _docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DOCKER, *words], capture_output=True, text=True, check=False)


def _command(*words: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        list(words), capture_output=True, text=True, timeout=600, env=env, check=False
    )
    if done.returncode != 0:
        raise ServerStartError(
            " ".join(words[:3]), found=f"it ended with exit code {done.returncode}",
            details=done.stderr[-2000:],
        )  # fmt: skip
    return done.stdout
