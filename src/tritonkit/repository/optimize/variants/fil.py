"""`fil`: decision trees for Triton's FIL backend, which runs them on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import BuildError, UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.from_onnx import forest_of_onnx
from tritonkit.repository.trees.to_treelite import write_checkpoint

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["FILE", "NAME", "make"]

NAME = "fil"
FILE = "checkpoint.tl"
"""The backend's name for a checkpoint of treelite (fil_backend, docs/model_config.md)."""


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write checkpoint.tl: the trees of the ONNX file."""
    where = f"{job.spec.file} network.onnx"
    try:
        forest = forest_of_onnx(need("onnx", "build").load(job.onnx))
        write_checkpoint(forest, folder / FILE, job.signature.outputs[0].name)
    except UsageError as error:
        raise BuildError(where, found=error.found, wanted=error.wanted, todo=error.todo) from error
    nodes = sum(len(tree.feature) for tree in forest.trees)
    return (f"{len(forest.trees)} trees of {nodes} nodes for FIL; judged by treelite's own predictor on the CPU",)
