"""Tuning for target gpu on a real Triton with a GPU that is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cli.running import failed, tritonkit
from tests.conftest import WriteModel
from tests.fakecuda import FakeCuda
from tests.repository.optimize.small_specs import onnx_file
from tritonkit.client import Client
from tritonkit.perf.load.openloop import parse_slo
from tritonkit.perf.tune import Embedded, InstanceGroup, Point
from tritonkit.perf.tune.run import Ready, TunePlan, prepared
from tritonkit.repository.modelspec import load

TEXT = """\
name: net
network: {onnx: net.onnx}
serving:
  max_batch_size: 4                  # on a CPU
  dynamic_batching: {preferred_batch_size: [2], max_queue_delay: 2ms}
  targets:
    gpu: {max_batch_size: 8, dynamic_batching: {max_queue_delay: 1ms}, instance_group: [{kind: gpu}]}
"""
CARD = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def project(root: Path, write_model: WriteModel) -> Path:
    """A project with a small network, which is served on a GPU."""
    write_model(TEXT, net__onnx=onnx_file([helper.make_node("Relu", ["x"], ["y"])], ["batch", 4]))
    return root


@pytest.fixture
def ready(project: Path, gpu_machine: FakeCuda) -> Iterator[Ready]:
    """A server of a search, in the present way."""
    with prepared(TunePlan(project, "net", parse_slo(["p99=1s"]), target="gpu")) as ready:
        yield ready


def test_candidates_are_on_the_gpu_and_on_the_cpu(ready: Ready, gpu_machine: FakeCuda) -> None:
    """The same spec on each device, with the settings of the target; each is served there, with the same answers."""
    name = "onnx-fp32"
    assert ready.gpus == (CARD,)
    assert ready.now == Point(InstanceGroup(name, 2, 1, 1), 8, (), 1000)
    assert {group.gpus for group in ready.space.groups} == {0, 1}
    assert {group.instances for group in ready.space.groups if group.gpus} == {1, 2, 3, 4}
    assert ready.space.delays_us == (0, 1000)
    assert isinstance(ready.server, Embedded)
    array = np.float32([[-1, 0, 1, 2]])
    for point, kind, sizes in (
        (ready.now, "KIND_GPU", [1, 2, 4, 8]),
        (Point(InstanceGroup(name, 3, 1, 1), 32), "KIND_GPU", [1, 2, 4, 8, 16, 32]),
        (Point(InstanceGroup(name, 1, 2), 16, (), 1000), "KIND_CPU", []),
    ):
        sessions = gpu_machine.counters()["sessions"]
        ready.server.serve(point)
        with Client(ready.server.address) as client:
            config = client.config("net")
            np.testing.assert_array_equal(client.model("net").predict(x=array)["y"], array.clip(0))
        (group,) = config.instance_group
        assert (group.Kind.Name(group.kind), group.count) == (kind, point.group.instances)
        assert [spec.batch_size for spec in config.optimization.cuda.graph_spec] == sizes
        assert config.max_batch_size == point.max_batch_size
        assert config.dynamic_batching.max_queue_delay_microseconds == point.delay_us
        if kind == "KIND_CPU":
            assert gpu_machine.counters()["sessions"] < sessions


def test_the_choice_becomes_settings_of_the_target(project: Path, gpu_machine: FakeCuda, tmp_path: Path) -> None:
    """JSON, page and text name target and card; the command changes model.yaml for that target alone."""
    before = load(project / "models" / "net", project).model.serving
    search = ("--objective", "latency", "--rate", "20", "--slo", "p50=10s", "--budget", "10m", "--trial", "1s")
    output = ("--json", "--report", str(tmp_path / "out"), "--root", str(project))
    done = tritonkit("tune", "net", "--target", "gpu", *search, *output, "--apply")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["target"], facts["gpus"]) == ("gpu", [CARD])
    measured = [evaluation["point"]["group"]["gpus"] for evaluation in facts["evaluations"]]
    assert 1 in measured
    assert facts["best"]["rate_per_s"] == 20
    assert f"Served for target gpu, {CARD}" in (tmp_path / "out" / "report.html").read_text()
    assert load(project / "models" / "net", project).model.serving == before
    best = facts["best"]["point"]
    if facts["diff"] and not facts["ended"]:
        assert "now: tritonkit build net --target gpu" in done.stderr
        serving = load(project / "models" / "net", project, "gpu").model.serving
        assert serving.max_batch_size == best["max_batch_size"]
        assert serving.instance_group[0].kind == ("gpu" if best["group"]["gpus"] else "cpu")
    assert gpu_machine.counters()["faults"] == 0


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_searched(project: Path) -> None:
    """The message says what is missing, and what else to do."""
    done = tritonkit("tune", "net", "--target", "gpu", "--slo", "p99=5ms", "--root", str(project))
    error = failed(done, 4)
    assert "--target gpu: it needs a GPU: there is no NVIDIA driver" in error
    assert "for a machine without a GPU: --target cpu" in error


def test_an_environment_for_cpus_is_named(
    project: Path, gpu_machine: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the command that makes one for GPUs."""
    from tests.parts import SERVER

    monkeypatch.setenv("TRITONKIT_SERVER_VENV", str(SERVER))
    done = tritonkit("tune", "net", "--target", "gpu", "--slo", "p99=5ms", "--root", str(project))
    assert "it needs a GPU, and the server environment is for CPUs" in failed(done, 4)
