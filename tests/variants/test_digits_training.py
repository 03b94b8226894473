"""The shipped digits: its teacher, what is pruned and distilled from it, and its network trained for int8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.torch_module import run_module
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.transforms import distilled, pruned
from tritonkit.repository.optimize.transforms.loop import parameter_count
from tritonkit.repository.optimize.variants import onnx_int8_qat
from tritonkit.repository.optimize.weights import WeightCache

pytestmark = pytest.mark.timeout(900)  # each trains a network, on cores that may be shared


def no_artifact() -> Artifact:
    """Of a job that has no need of its FP32 file."""
    raise AssertionError("nothing is exported here")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each network's weights lie once it was trained."""
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def job(project: Path, weights: Path) -> Job:
    """The shipped spec."""
    spec = load(project / "models" / "digits", project)
    return Job(spec, WeightCache(weights, spec), no_artifact)


def accuracy(job: Job, run: Callable[[Batch], Batch]) -> float:
    """By the spec's own metric, on the held-out fifth."""
    outputs = [run(batch) for batch in job.samples]
    metric = job.spec.model.quality.metric
    assert metric is not None
    return float(np.mean(load_hook(job.spec, metric, "quality.metric")(outputs, outputs)))


def module_accuracy(job: Job, module: Any) -> float:
    """Of a torch module."""
    return accuracy(job, lambda batch: run_module(job.spec, module, batch))


def test_the_teacher_is_larger_and_no_worse(job: Job) -> None:
    """It has half a million to a million parameters and at least the small network's accuracy."""
    teacher, network = job.teacher(), job.module()
    assert 500_000 <= parameter_count(teacher) <= 1_000_000
    assert module_accuracy(job, teacher) >= module_accuracy(job, network)


def test_half_the_channels_cost_at_most_a_hundredth(job: Job) -> None:
    """Pruned and fine-tuned: at most 0.6 of the parameters, at most 0.01 below the teacher."""
    module, _ = pruned.make(job)
    assert parameter_count(module) <= 0.6 * parameter_count(job.teacher())
    assert module_accuracy(job, module) >= module_accuracy(job, job.teacher()) - 0.01


def test_the_student_is_a_tenth_and_nearly_as_good(job: Job) -> None:
    """Distilled: at most 0.1 of the teacher's parameters, at most 0.02 below it."""
    module, _ = distilled.make(job)
    assert parameter_count(module) <= 0.1 * parameter_count(job.teacher())
    assert module_accuracy(job, module) >= module_accuracy(job, job.teacher()) - 0.02


@pytest.mark.usefixtures("each_cpu")
def test_training_brings_int8_closer_to_the_network(job: Job, weights: Path, tmp_path: Path) -> None:
    """At most 0.01 is lost, in three tenths of the FP32 weights' bytes; without steps it lies farther away."""
    still = job.spec.model.optimize.model_copy(update={"learning_rate": 1e-9})
    spec = replace(job.spec, model=job.spec.model.model_copy(update={"optimize": still}))
    untrained = Job(spec, WeightCache(weights, spec), no_artifact)
    reference = [run_module(job.spec, job.module(), batch)["logits"] for batch in job.samples]
    errors = []
    for made in (job, untrained):
        onnx_int8_qat.make(made, tmp_path)
        session = open_session(tmp_path / "model.onnx", "test")
        outputs = [run_session(session, batch, "test") for batch in job.samples]
        pairs = zip(outputs, reference, strict=True)
        errors.append(np.mean([np.square(f["logits"] - w).mean() for f, w in pairs]))
        lost = module_accuracy(job, job.module()) - accuracy(
            job, lambda batch, session=session: run_session(session, batch, "test")
        )
        assert lost <= 0.01
    assert errors[0] < 0.8 * errors[1], errors
    assert (tmp_path / "model.onnx").stat().st_size < 0.3 * 4 * parameter_count(job.module())
