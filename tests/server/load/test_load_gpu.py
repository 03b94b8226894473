"""Figures of a GPU in the reports of loads on a real Triton; the metrics are those that one with a GPU reported."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Done, tritonkit
from tests.conftest import PROJECT
from tests.perf.load.gpu import GPU, gpu_text, metrics_server
from tests.server.projects import share_cache
from tritonkit.repository.report.gpu_runs import gpu_runs
from tritonkit.serve import Endpoint

LOADS = {
    "open": ("--rate", "20", "--warm-up", "100ms"),
    "closed": ("--users", "2"),
}


@pytest.fixture
def metrics() -> Iterator[str]:
    """The address of metrics whose energy rises by 300 J at each read."""
    energy = itertools.count(300, 300)
    with metrics_server(lambda: gpu_text(next(energy))) as address:
        yield address


@pytest.fixture
def own_project(root: Path) -> Path:
    """A project with digits, where figures are kept."""
    shutil.copytree(PROJECT / "models" / "digits", root / "models" / "digits")
    share_cache(root)
    return root


def loaded(server: Endpoint, project: Path, kind: str, *options: str) -> Done:
    """The load command, for three seconds."""
    load = ("load", "digits", *LOADS[kind], "--duration", "3s", "--address", server.grpc, "--root", str(project))
    done = tritonkit(*load, *options)
    assert done.returncode in (0, 1), done.stderr
    return done


@pytest.mark.parametrize("kind", LOADS)
def test_a_report_has_the_gpus_of_the_server(
    digits_server: Endpoint, own_project: Path, metrics: str, kind: str, tmp_path: Path
) -> None:
    """In JSON and the written report: use, memory, power, and the energy of a request; also for the model's report."""
    done = loaded(digits_server, own_project, kind, "--metrics", metrics, "--json", "--report", str(tmp_path))
    facts = json.loads(done.stdout)
    (gpu,) = facts["gpu"]["gpus"]
    assert gpu["gpu"] == GPU
    assert gpu["busy"] == pytest.approx(0.76)
    assert facts["gpu"]["energy_per_request_j"] > 0
    assert json.loads((tmp_path / "report.json").read_text())["gpu"] == facts["gpu"]
    (run,) = gpu_runs(own_project, "digits")
    assert run.energy_per_request_j == facts["gpu"]["energy_per_request_j"]


@pytest.mark.parametrize("kind", LOADS)
def test_the_text_has_lines_about_gpus_only_where_there_are_some(
    digits_server: Endpoint, own_project: Path, metrics: str, kind: str
) -> None:
    """Metrics of a server without GPUs have none."""
    done = loaded(digits_server, own_project, kind, "--metrics", metrics)
    assert f"{GPU}: in use 76% of the time, 5.6 of 79.6 GiB at most, 577 of 700 W on average" in done.stdout
    assert "J a request" in done.stdout
    with metrics_server(lambda: 'nv_inference_count{model="net",version="1"} 5\n') as without:
        assert "GPU" not in loaded(digits_server, own_project, kind, "--metrics", without).stdout
