"""The ONNX forms of the models that ship: small enough, and past their gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.gate import judge
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import build, job_of, plan
from tritonkit.repository.optimize.variants.int8_cpu import BITS_VARIABLE

# Each is tried layer by layer, on cores that may be shared.
pytestmark = pytest.mark.timeout(1800)

Jobs = Callable[[str], tuple[Job, BuildCache]]


@pytest.fixture(scope="module")
def jobs(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """The job of a model that ships; each trained or exported once for this file."""
    cache = BuildCache(tmp_path_factory.mktemp("cache"))
    made: dict[str, Job] = {}

    def job(name: str) -> tuple[Job, BuildCache]:
        if name not in made:
            made[name] = job_of(load(project / "models" / name, project), cache, threads=2)
        return made[name], cache

    return job


@pytest.mark.parametrize("model", ["digits", "sentences"])
@pytest.mark.parametrize(
    ("variant", "most", "bits"),
    [
        ("onnx-fp16", 0.51, ""),
        ("onnx-bf16", 0.51, ""),
        ("onnx-int8-dynamic", 0.27, ""),
        ("onnx-int8-static", 0.27, ""),
        ("onnx-int8-dynamic", 0.27, "7"),
        ("onnx-int8-static", 0.27, "7"),
    ],
)
def test_a_form_is_small_and_passes_its_gate(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, model: str, variant: str, most: float, bits: str
) -> None:
    """Share of the FP32 file, and the metric's drop on held-out data, which chose nothing; INT8 for this
    CPU, and for those without VNNI."""
    monkeypatch.setenv(BITS_VARIABLE, bits)
    job, cache = jobs(model)
    artifact = build(plan(job.spec, cache, variant=variant), cache, job)
    assert artifact.size_bytes <= most * job.base.size_bytes
    outcome = judge(job.spec, artifact, job.base)
    assert outcome.passed, (outcome.misses, artifact.notes)
    assert artifact.quality is not None
    assert artifact.quality.drop <= 0.01
    assert any("to FP32 on the calibration data" in note for note in artifact.notes)
