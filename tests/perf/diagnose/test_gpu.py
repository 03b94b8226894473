"""GPUs: recorded trials have their verdicts, the driver's program is read, and what is not seen is not judged."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.perf.diagnose.evidence import diagnosed, gpu, machine, model, server
from tests.perf.diagnose.recorded import RECORDED, Recorded
from tests.perf.diagnose.test_rules import CHANGING, ON_GPU
from tests.perf.load.gpu import gpu_text, metrics_server
from tritonkit.perf.commands.diagnose import figures, gpu_figures
from tritonkit.perf.diagnose import Evidence, diagnose, evidence_of
from tritonkit.perf.diagnose.clocks import ClockLook, Clocks, has_clocks, look_at_clocks
from tritonkit.perf.diagnose.configuration import facts_of
from tritonkit.perf.diagnose.metrics import read_metrics
from tritonkit.repository.render.message import parse_text

OF_GPUS = {"gpu-throttled", "rebuilding-plans", "stubs-bound", "copies-bound", "gpu-idle"}


@pytest.mark.parametrize("trial", RECORDED, ids=lambda trial: f"{trial.cause}: {trial.how}")
def test_a_recorded_trial_has_its_verdict(trial: Recorded) -> None:
    """With the trial's own rate."""
    evidence = evidence_of(trial.observation())
    assert evidence.servers[0].rate_per_s == pytest.approx(trial.rate_per_s, rel=0.01)
    diagnosis = diagnose(evidence)
    assert diagnosis.verdict == trial.cause, diagnosis
    assert all(finding.change and finding.gain and all(finding.evidence) for finding in diagnosis.findings)


@pytest.mark.parametrize("trial", RECORDED, ids=lambda trial: f"{trial.cause}: {trial.how}")
def test_nothing_is_said_of_a_gpu_that_is_not_seen(trial: Recorded) -> None:
    """Without the server's metrics, its GPU may be used or not."""
    evidence = evidence_of(trial.observation())
    unseen = replace(evidence, servers=tuple(replace(server, gpus=()) for server in evidence.servers))
    causes = {finding.cause for finding in diagnose(unseen).findings}
    assert not causes & OF_GPUS


def test_rules_of_gpus_do_not_fire_close_by() -> None:
    """One condition of each is missing."""
    close = [
        (CHANGING | {"builds_plans": False}, gpu(0.04)),
        (CHANGING | {"sizes": {32: 90, 8: 10}}, gpu(0.04)),
        (CHANGING | {"compute_ms": 5.0}, gpu(0.04)),
        (CHANGING, gpu(0.76)),
        ({"python": True, "items_per_run": 63.0}, gpu(0.67)),
        ({"python": True, "items_per_run": 20.0}, gpu(0.33)),
        ({"copies": 0.3, "items_per_run": 63.0}, gpu(0.3)),
        ({"copies": 0.7, "items_per_run": 63.0}, gpu(0.8)),
        ({"items_per_run": 4.0, "gpu": False}, gpu(0.2)),
        ({"items_per_run": 32.0}, gpu(0.2)),
        ({"items_per_run": 63.0}, gpu(0.9, throttled=0.2, clock=0.95)),
        ({"items_per_run": 63.0}, gpu(0.5, throttled=1.0, clock=0.5)),
    ]
    for changed, seen in close:
        causes = {f.cause for f in diagnosed(server(model(**ON_GPU | changed), gpus=(seen,))).findings}
        assert not causes & OF_GPUS, changed


def test_more_instances_help_only_a_gpu_that_has_time() -> None:
    """Cores do not matter to a model on a GPU; what else is full and waits is at its limit."""
    used = machine(server_cores=1.9)
    changed = ON_GPU | {"items_per_run": 63.0}
    assert diagnosed(server(model(**changed), machine=used, gpus=(gpu(0.6),))).verdict == "too-few-instances"
    assert diagnosed(server(model(**changed), machine=used, gpus=(gpu(0.75),))).verdict == "model-execution"


def test_the_driver_says_why_a_clock_is_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program nvidia-smi is asked; a GPU that lacks a field and a program that fails are left out."""
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    lines = ["GPU-1, 0x0000000000000004, 1200, 1980", "GPU-2, 0x0000000000000001, 345, 1980", "GPU-3, [N/A], 1, 1"]
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    tool.chmod(0o755)
    assert has_clocks()
    assert look_at_clocks() == {
        "GPU-1": ClockLook(1200.0, 1980.0, ("its power limit",)),
        "GPU-2": ClockLook(345.0, 1980.0),
    }
    clocks, ended = Clocks(), threading.Event()
    ended.set()
    clocks.watch(ended)
    assert set(clocks.since(0.0)) == {"GPU-1", "GPU-2"}
    tool.write_text("#!/bin/sh\necho 'Field \"clocks_event_reasons.active\" is not a valid field to query.'\nexit 2\n")
    assert look_at_clocks() == {}
    tool.write_text("#!/bin/sh\nprintf 'lost: \\377\\n'\n")  # no UTF-8
    assert look_at_clocks() == {}
    tool.unlink()
    assert look_at_clocks() == {}


@pytest.mark.parametrize(
    ("text", "on_gpu", "builds_plans"),
    [
        ("instance_group { kind: KIND_CPU }", False, False),
        ("instance_group { kind: KIND_GPU }", True, True),
        ("instance_group { kind: KIND_GPU } optimization { cuda { graphs: true } }", True, False),
        (
            "instance_group { kind: KIND_GPU } optimization { execution_accelerators {"
            ' gpu_execution_accelerator { name: "tensorrt" } } }',
            True,
            False,
        ),
    ],
)
def test_a_configuration_says_whether_plans_are_built(text: str, on_gpu: bool, builds_plans: bool) -> None:
    """ONNX Runtime's CUDA provider without graphs builds them for each batch size."""
    facts = facts_of(parse_text(f'name: "m" backend: "onnxruntime" {text}', "m"))
    assert (facts.gpu, facts.builds_plans) == (on_gpu, builds_plans)


def test_metrics_have_the_gpus_of_a_server() -> None:
    """Each GPU has its UUID; a server without GPUs has none."""
    with metrics_server(lambda: gpu_text(600.0)) as address:
        (look,) = read_metrics(address).gpus.values()
        assert (look.busy, look.power_w) == (0.76, 577.0)
    with metrics_server(lambda: "") as address:
        assert read_metrics(address).gpus == {}


def test_a_gpu_whose_use_is_not_known_is_not_judged() -> None:
    """Its other figures are in the table, and a rule that needs its use does not fire."""
    unknown = gpu(0.9, throttled=1.0, clock=0.5)
    unknown = replace(unknown, use=replace(unknown.use, busy=None, power_w=None))
    evidence = Evidence((server(model(**ON_GPU), gpus=(unknown,)),))
    assert not {finding.cause for finding in diagnose(evidence).findings} & OF_GPUS
    columns, (row,) = gpu_figures(evidence)
    figures_of_row = dict(zip(columns, row, strict=True))
    assert (figures_of_row["% used"], figures_of_row["% throttled"]) == ("-", "100")


def test_the_tables_have_gpus_and_copies_only_where_there_are_gpus() -> None:
    """Use, memory, power, energy of a request; and copies of each model."""
    evidence = evidence_of(RECORDED[0].observation())
    columns, (row,) = gpu_figures(evidence)
    assert dict(zip(columns, row, strict=True))["% used"] == "75"
    assert row[-2:] == ["0.038", "-"]
    columns, (row,) = figures(evidence)
    assert (columns[-1], row[-1]) == ("% copies", "10")
    bare = replace(evidence, servers=tuple(replace(server, gpus=()) for server in evidence.servers))
    assert gpu_figures(bare)[1] == []
    assert "% copies" not in figures(bare)[0]
