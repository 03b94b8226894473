"""Figures of variants that a build judged and timed on a GPU, as its records in the cache have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.optimize.gpu_judging import judged_before
from tritonkit.repository.optimize.make import BuildPlan
from tritonkit.repository.optimize.results import Result, judged
from tritonkit.repository.optimize.timing import find_gpu_timing
from tritonkit.repository.optimize.variants import PLAINS

__all__ = ["GpuResult", "or_on_gpu", "read_gpu_result"]


@dataclass(frozen=True)
class GpuResult:
    """A variant as it runs on a GPU.

    Args:
        gpu: the card's name, and the driver's version.
        alone: whether no CPU measured it.
    """

    gpu: str
    result: Result
    alone: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The facts for `--json`."""
        return {"gpu": self.gpu, **self.result.to_dict()}


def read_gpu_result(what: BuildPlan, artifact: Artifact, before: Sequence[GpuResult]) -> GpuResult | None:
    """The figures of a variant on a GPU; None where no build has any for the spec as it is.

    Args:
        before: the earlier variants, onnx-fp32 among them, with which this one is compared if the card is the same.
    """
    timing, record = find_gpu_timing(artifact), judged_before(what, artifact)
    if record is not None:
        gpu, on_gpu = record
        timing = timing if timing is not None and timing.gpu == gpu else None
    elif timing is not None and what.variant.form is not None and what.variant.form.by_gpu:
        gpu, on_gpu = timing.gpu, artifact  # a GPU alone runs it, so the build compared it there
    else:
        return None
    base = next((one.result for one in before if one.gpu == gpu and one.result.variant in PLAINS), None)
    new_notes = tuple(note for note in on_gpu.notes if note not in artifact.notes)
    result = judged(what.spec, what.variant, on_gpu, timing, base, cached=True)
    alone = artifact.quality is None or on_gpu is artifact
    return GpuResult(gpu, replace(result, artifact=replace(on_gpu, notes=new_notes)), alone)


def or_on_gpu(results: Sequence[Result], on_gpus: Sequence[GpuResult]) -> list[Result]:
    """The results, with the GPU's in place of one that the CPU could not measure."""
    by_variant = {one.result.variant: one.result for one in on_gpus}
    return [result if result.measured else by_variant.get(result.variant, result) for result in results]
