"""A private Prometheus for as long as somebody looks: no set-up, nothing left behind."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import ServerStartError, UsageError
from tritonkit.metrics import GATEWAY_JOB, TRITON_JOB
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.process import SupervisedProcess

__all__ = ["SCRAPE_S", "recording"]

SCRAPE_S = 1.0
_START_S = 60.0
_HOST = "127.0.0.1"
_TAIL = 500


@contextlib.contextmanager
def recording(
    replicas: Sequence[str], gateway: str | None = None, *, rules: str = "", scrape_s: float = SCRAPE_S
) -> Iterator[str]:
    """A Prometheus on loopback that scrapes while the block lasts; yields its URL.

    Args:
        replicas: metrics addresses, host:port.
        gateway: the address of the gateway's metrics, host:port; of an Envoy's admin host:port/stats/prometheus.
        rules: the text of a rule file.
        scrape_s: seconds between two scrapes, and between two evaluations of rules.

    Raises:
        UsageError: there is no program `prometheus`.
        ServerStartError: Prometheus did not become ready.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise UsageError(
            "prometheus",
            found="there is no such program on PATH",
            wanted="one to scrape the addresses of --metrics with",
            todo="apt-get install prometheus; or name one that runs with --prometheus http://HOST:9090",
        )
    with tempfile.TemporaryDirectory(prefix="tritonkit-dash-") as name:
        folder, port = Path(name), _free_port()
        (folder / "rules.yml").write_text(rules or "groups: []\n")
        (folder / "prometheus.yml").write_text(_config(replicas, gateway, scrape_s))
        argv = [
            program,
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--storage.tsdb.retention.time=6h",
            "--storage.tsdb.retention.size=512MB",
            f"--web.listen-address={_HOST}:{port}",
            "--log.level=warn",
        ]
        launch = Launch(argv=argv, env=dict(os.environ), cwd=str(folder))
        process = SupervisedProcess(launch, folder / "log")
        try:
            _await_ready(process, port)
            yield f"http://{_HOST}:{port}"
        finally:
            process.kill()


def _config(replicas: Sequence[str], gateway: str | None, scrape_s: float) -> str:
    import yaml

    every = f"{scrape_s * 1000:.0f}ms"
    jobs: list[dict[str, Any]] = [_job(TRITON_JOB, "/metrics", replicas)]
    if gateway is not None:
        address, slash, path = gateway.partition("/")
        jobs.append(_job(GATEWAY_JOB, f"/{path}" if slash else "/metrics", [address]))
    times = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    return yaml.safe_dump({"global": times, "rule_files": ["rules.yml"], "scrape_configs": jobs})


def _job(name: str, path: str, targets: Sequence[str]) -> dict[str, Any]:
    return {"job_name": name, "metrics_path": path, "static_configs": [{"targets": list(targets)}]}


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def _await_ready(process: SupervisedProcess, port: int) -> None:
    deadline = time.monotonic() + _START_S
    while not _ready(port):
        if process.poll() is not None or time.monotonic() > deadline:
            output = process.log.read_text(errors="replace") if process.log.exists() else ""
            raise ServerStartError(
                "prometheus",
                found="it ended" if process.poll() is not None else "it is not ready",
                wanted=f"an answer within {_START_S:.0f} s",
                details=output[-_TAIL:],
            )
        time.sleep(0.05)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=1)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
