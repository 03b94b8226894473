"""A TensorRT plan: for one version of TensorRT and one kind of GPU, which alone can read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.optimize.files.ready import NO_RANGES, Place, declared
from tritonkit.repository.optimize.runner import Runner
from tritonkit.repository.optimize.runtimes import tensorrt_gpu
from tritonkit.repository.optimize.variants.tensorrt_plan import RECORD

__all__ = ["PlanFile"]

_PLAN = "model.plan"


@dataclass(frozen=True)
class PlanFile:
    """A plan whose inputs and outputs the spec declares."""

    place: Place
    ranges = NO_RANGES
    most_items = 0
    tells = False

    def signature(self, batched: bool) -> Signature:
        """Inputs and outputs of the spec."""
        return declared(self.place, batched, "")

    def batch_axis_missing(self) -> str:
        """Empty: shapes are the spec's, without the batch axis."""
        return ""

    def open(self, threads: int) -> Runner:
        """The plan on this machine's GPU; BuildError where it is for another one, or for another TensorRT."""
        return tensorrt_gpu.open_file(self.place.path, self.place.where)

    def write(self, folder: Path) -> tuple[str, ...]:
        """model.plan, with the record of what it was built for, if there is one next to it."""
        copy_file(self.place.path, folder / _PLAN)
        record = self.place.path.with_name(RECORD)
        if record.is_file():
            copy_file(record, folder / RECORD)
        return ()
