"""A student learns from a teacher, and what is no student is refused."""

from __future__ import annotations

import pytest
import torch

from tests.repository.optimize.transforms.conftest import MakeJob
from tritonkit.errors import BuildError
from tritonkit.repository.export.torch_module import run_module
from tritonkit.repository.optimize.transforms.distilled import make

SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [3]}}
optimize: {training: data:training, student: network:student, epochs: 30, learning_rate: 0.01}
"""
NETWORK = """
from torch import nn
def build(wide=64):
    return nn.Sequential(nn.Linear(4, wide), nn.Tanh(), nn.Dropout(0.1), nn.Linear(wide, 3))
def student():
    return build(4)
"""
DATA = """
import numpy as np
def training():
    x = np.random.default_rng(0).standard_normal((8, 16, 4)).astype(np.float32)
    return [({"x": batch}, None) for batch in x]
"""


def test_the_student_comes_to_give_what_the_teacher_gives(make_job: MakeJob) -> None:
    """A fifth of the error of its beginning is left; it is in evaluation mode, and its size is told."""
    lines: list[str] = []
    job = make_job(SPEC, lines, network__py=NETWORK, data__py=DATA)
    student, notes = make(job)
    losses = [float(line.split("loss ")[1]) for line in lines]
    assert len(losses) == 30
    assert losses[-1] < losses[0] / 5
    assert not any(module.training for module in student.modules())
    assert notes == ("parameters: 35, the teacher's 515 (0.068 of them)",)
    assert run_module(job.spec, student, job.training[0][0])["y"].shape == (16, 3)


def test_the_same_student_comes_out_again(make_job: MakeJob) -> None:
    """Two trainings give equal weights."""
    job = make_job(SPEC.replace("30", "2"), network__py=NETWORK, data__py=DATA)
    first, second = (make(job)[0] for _ in range(2))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@pytest.mark.parametrize(
    ("spec", "network", "message"),
    [
        (SPEC.replace("student: network:student, ", ""), NETWORK, "it is not given"),
        (SPEC, NETWORK.replace("return build(4)", "return nn.Linear(4, 2)"), "the shapes [[16, 2]]"),
        (SPEC, NETWORK.replace("return build(4)", "return nn.Linear(5, 3)"), "running the student"),
        (SPEC, NETWORK.replace("return build(4)", "return 4"), "returned int"),
    ],
    ids=["none", "other outputs", "other inputs", "no module"],
)
def test_what_is_no_student_is_refused(make_job: MakeJob, spec: str, network: str, message: str) -> None:
    """Each mistake is told under optimize.student."""
    job = make_job(spec.replace("30", "1"), network__py=network, data__py=DATA)
    with pytest.raises(BuildError) as caught:
        make(job)
    assert caught.value.where.endswith("optimize.student")
    assert message in caught.value.found


def test_a_target_that_is_no_class_is_refused(make_job: MakeJob) -> None:
    """Labels that count from 1 are told as a mistake, not learned from."""
    data = DATA.replace("None)", "np.full(16, 3))")
    with pytest.raises(BuildError, match=r"Target 3 is out of bounds"):
        make(make_job(SPEC, network__py=NETWORK, data__py=data))


def test_training_data_must_be_named(make_job: MakeJob) -> None:
    """Without optimize.training the error says so, before anything is trained."""
    job = make_job(SPEC.replace("training: data:training, ", ""), network__py=NETWORK)
    with pytest.raises(BuildError, match=r"optimize\.training"):
        make(job)
