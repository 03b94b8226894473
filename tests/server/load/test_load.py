"""Load on a real Triton: both protocols, several processes, and the one command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import tritonkit
from tests.conftest import PROJECT
from tests.loadtest.conftest import locust
from tests.ports import free_port
from tests.waiting import PATIENCE_S
from tritonkit.repository.pipeline import build_repository

LOOSE = """
models:
  digits: {p99_ms: 20000, min_rate: 0.1}
  sentences: {p99_ms: 20000, min_rate: 0.1}
"""


@pytest.fixture
def options(digits_server: Any, tmp_path: Path) -> list[str]:
    """The server's addresses, a few users, and limits that any machine holds."""
    limits = tmp_path / "limits.yaml"
    limits.write_text(LOOSE)
    return [
        "--host",
        digits_server.grpc,
        "--http-host",
        digits_server.http,
        "--users",
        "6",
        "--spawn-rate",
        "6",
        "--thresholds",
        str(limits),
        "--report-json",
        str(tmp_path / "r.json"),
    ]


def series(tmp_path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The report that was written, by protocol and model."""
    facts = json.loads((tmp_path / "r.json").read_text())
    return {(one["protocol"], one["model"]): one for one in facts["series"]}


def test_both_protocols_answer_right_with_real_inputs(options: list[str], tmp_path: Path) -> None:
    """Digits and sentences of all lengths over gRPC and HTTP: no wrong answer, the same sizes."""
    done = locust(*options, "--run-time", "4s", "--think-time", "20ms", "--weights", "digits=3")
    assert done.returncode == 0, done.stderr
    reports = series(tmp_path)
    assert set(reports) == {(p, m) for p in ("grpc", "http") for m in ("digits", "sentences")}
    for (_, model), report in reports.items():
        assert report["failures"] == 0, report
        assert report["mean_bytes"] == {"digits": 3 + 3 * 4, "sentences": 384 * 4}[model]
    assert reports["grpc", "digits"]["requests"] > reports["grpc", "sentences"]["requests"]


def test_two_workers_share_a_load(options: list[str], tmp_path: Path) -> None:
    """The master adds up what both workers counted, gives the verdict, and ends them."""
    port = free_port()
    file = str(PROJECT / "loadtest" / "locustfile.py")
    command = [sys.executable, "-m", "locust", "-f", file, "--worker", "--master-port", str(port)]
    workers = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        done = locust(
            *options,
            "--master",
            "--master-bind-host",
            "127.0.0.1",
            "--master-bind-port",
            str(port),
            "--expect-workers",
            "2",
            "--run-time",
            "20s",
            "--csv",
            str(tmp_path / "r"),
        )
        logs = [worker.communicate(timeout=PATIENCE_S)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert done.returncode == 0, done.stderr
    assert all("Got quit message from master" in text for text in logs)
    rows = (tmp_path / "r_stats.csv").read_text().splitlines()[1:-1]
    counted = {tuple(row.split(",")[:2]): int(row.split(",")[2]) for row in rows}
    reports = series(tmp_path)
    assert {key: report["requests"] for key, report in reports.items()} == counted
    assert all(report["failures"] == 0 for report in reports.values())


def test_one_command_starts_a_server_loads_it_and_judges(root: Path) -> None:
    """`tritonkit load` without an address, over both protocols, with the users in steps."""
    (root / "models").rmdir()
    for name in ("loadtest", "models", ".venv-server"):
        (root / name).symlink_to(PROJECT / name)
    build_repository(PROJECT, ("digits",), out=root / "model_repository")
    done = tritonkit(
        "load",
        "digits",
        "--users",
        "8",
        "--duration",
        "2s",
        "--tier",
        "batch",
        "--rest",
        "--shape",
        "step",
        "--root",
        str(root),
    )
    assert done.returncode == 0, done.stderr
    assert "all limits hold" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("digits")]
    assert [(row[1], row[3]) for row in rows] == [("grpc", "0"), ("http", "0")]
