"""What a network gives before it is optimized: what variants are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonkit.export.onnx_file import open_session, run_session
from tritonkit.export.samples import Batch, single_items
from tritonkit.export.torch_module import run_module

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["Reference"]


@dataclass(frozen=True)
class Reference:
    """The network's outputs for its samples, and for the first items alone.

    `name` says what gave them: the PyTorch module, the teacher, or ONNX Runtime with every graph
    optimization off.
    """

    name: str
    samples: Sequence[Batch]
    singles: Sequence[Batch]
    outputs: Sequence[Batch]
    single_outputs: Sequence[Batch]

    @classmethod
    def of(cls, job: Job) -> Reference:
        """Run the network on everything once."""
        samples, singles = job.samples, single_items(job.samples, job.batched)
        spec = job.spec
        if spec.model.network.torch is not None:
            name = "the teacher" if job.transformed and spec.model.optimize.teacher else "PyTorch"
            module = job.teacher() if job.transformed else job.module()

            def run(batch: Batch) -> Batch:
                return run_module(spec, module, batch)
        else:
            name, where = "ONNX Runtime without optimizations", f"{spec.file} network.onnx"
            session = open_session(job.source, where, optimized=False)

            def run(batch: Batch) -> Batch:
                return run_session(session, batch, where)

        return cls(name, samples, singles, [*map(run, samples)], [*map(run, singles)])
