"""`teacher`: the larger network itself, to hold the smaller ones against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["make"]


def make(job: Job) -> tuple[Any, tuple[str, ...]]:
    """The trained module of `optimize.teacher`; BuildError for a spec without one."""
    if job.spec.model.optimize.teacher is None:
        raise BuildError(
            f"{job.spec.file} optimize.teacher",
            found="it is not given",
            wanted="a larger network, for this variant",
            todo="name its factory: teacher: {torch: teacher:build, train: teacher:train}",
        )
    return job.teacher(), ()
