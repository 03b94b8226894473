"""What a network gives before it is optimized: what variants are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonkit.export.onnx_file import open_session, run_session
from tritonkit.export.samples import Batch, count_items
from tritonkit.export.torch_module import run_module

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["Reference"]

_SINGLES = 2  # items that are run alone too: a network that only works at the exported batch size fails on them


@dataclass(frozen=True)
class Reference:
    """The network's outputs for its samples, then for their first items alone."""

    name: str
    """What gave them: the PyTorch module, the teacher, or ONNX Runtime with every graph optimization off."""
    batches: Sequence[Batch]
    outputs: Sequence[Batch]
    samples: int
    """How many of the batches are samples: metrics are taken of those alone."""

    @classmethod
    def of(cls, job: Job) -> Reference:
        """Run the network on everything once."""
        spec, batches, first = job.spec, list(job.samples), job.samples[0]
        if job.batched:
            alone = range(min(_SINGLES, count_items(first)))
            batches += [{n: a[i : i + 1] for n, a in first.items()} for i in alone]
        if spec.model.network.torch is not None:
            name = "the teacher" if job.transformed and spec.model.optimize.teacher else "PyTorch"
            module = job.teacher() if job.transformed else job.module()
            outputs = [run_module(spec, module, batch) for batch in batches]
        else:
            name, where = "ONNX Runtime without optimizations", f"{spec.file} network.onnx"
            session = open_session(job.source, where, optimized=False)
            outputs = [run_session(session, batch, where) for batch in batches]
        return cls(name, batches, outputs, len(job.samples))
