"""`teacher`: the larger network itself. `distilled`: a small network, trained to give the teacher's outputs.

Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531; the losses are described in `loop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.hooks import hook_errors
from tritonkit.repository.export.torch_module import make_module, outputs_of
from tritonkit.repository.optimize.transforms.loop import fit, parameter_count, to_pairs

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make", "make_teacher"]


def make(job: Job) -> tuple[Any, tuple[str, ...]]:
    """`optimize.student`, trained from the teacher on `optimize.training`, in evaluation mode.

    BuildError without a student, for a student with other outputs than the teacher's, or when training fails.
    """
    torch = need("torch", "build")
    spec = job.spec
    hook = spec.model.optimize.student
    if hook is None:
        raise BuildError(
            f"{spec.file} optimize.student",
            found="it is not given",
            wanted="a smaller network for this variant to train",
            todo="write a function in the model's folder that returns one, and name it: student: student:build",
        )
    pairs = to_pairs(spec, job.training)
    teacher = job.teacher()
    student = make_module(spec, hook, "optimize.student")
    with hook_errors(spec, "optimize.student", "running the student on the training data"), torch.no_grad():
        shapes = [tuple(output.shape) for output in outputs_of(student.eval(), pairs[0][0])]
        expected = [tuple(output.shape) for output in outputs_of(teacher, pairs[0][0])]
    if shapes != expected:
        raise BuildError(
            f"{spec.file} optimize.student",
            found=f"{hook} gives outputs of the shapes {[list(shape) for shape in shapes]}",
            wanted=f"{[list(shape) for shape in expected]}, as the teacher gives for the same batch",
        )
    with hook_errors(spec, "optimize.student", "training the student"):
        fit(student.train(), teacher, pairs, spec.model.optimize, f"{spec.file} optimize", job.say)
    large, small = parameter_count(teacher), parameter_count(student)
    return student.eval(), (f"parameters: {small:,}, the teacher's {large:,} ({small / large:.3f} of them)",)


def make_teacher(job: Job) -> tuple[Any, tuple[str, ...]]:
    """The trained module of `optimize.teacher`; BuildError for a spec without one."""
    if job.spec.model.optimize.teacher is None:
        raise BuildError(
            f"{job.spec.file} optimize.teacher",
            found="it is not given",
            wanted="a larger network for this variant",
            todo="name its factory: teacher: {torch: teacher:build, train: teacher:train}",
        )
    return job.teacher(), ()
