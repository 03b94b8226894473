"""Find outputs whose shape does not follow from the input's, so that requests cannot share a batch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.samples import Batch, count_items, said_shapes

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["data_dependent_output", "refuse_data_dependent"]

_ALONE = 4
"""Number of sample items to run alone."""


def data_dependent_output(job: Job, file: Path) -> str:
    """A sentence about the first output whose shape depends on the values of an input; "" if there is none.

    Samples are run as they are, together and item by item. Made-up input is run as zeros too, unless the network
    refuses zeros.
    """
    where, batch = f"{job.spec.file} network.onnx", job.samples[0]
    session = open_session(file, where, optimized=False)
    with job.advised():
        together = run_session(session, batch, where)
    if job.batched and (problem := _other_rows(batch, together)):
        return problem
    if job.has_samples:
        alone = ((item, run_session(session, item, where)) for item in _alone(job))
        return _other_shapes(alone)
    try:
        zeros = run_session(session, _zeros(batch), where)
    except BuildError:
        return ""
    return _other_shapes([(batch, together), (batch, zeros)])


def refuse_data_dependent(job: Job, file: Path) -> None:
    """Raise BuildError for a network that must be batched and has an output whose shape varies."""
    if job.batched and (problem := data_dependent_output(job, file)):
        raise BuildError(
            f"{job.spec.file} network.onnx",
            found=problem,
            wanted="output shapes that follow from input shapes: a batch must have one shape",
            todo="set serving: {max_batch_size: 0}, so that each request has its own shape; or return a"
            " fixed-size result with a count",
        )


def _alone(job: Job) -> Iterable[Batch]:
    """The first items of the samples, each alone; without a batch axis each batch is one item."""
    for batch in job.samples[:_ALONE]:
        if not job.batched:
            yield batch
            continue
        for place in range(min(_ALONE, count_items(batch))):
            yield {name: array[place : place + 1] for name, array in batch.items()}


def _zeros(batch: Batch) -> Batch:
    """The batch with zeros instead of numbers. Constant inputs (masks, rates) and texts stay, because networks seldom
    accept other values."""
    import numpy as np

    return {
        name: array if array.dtype == object or _is_constant(array) else np.zeros_like(array)
        for name, array in batch.items()
    }


def _is_constant(array: Any) -> bool:
    return bool(array.size > 1 and (array == array.flat[0]).all())


def _other_rows(batch: Batch, outputs: Batch) -> str:
    items = count_items(batch)
    for name, array in outputs.items():
        if array.ndim and array.shape[0] != items:
            return (
                f"the shape of output {name} depends on the data: it has {array.shape[0]} rows for"
                f" {items} item{'s' if items > 1 else ''} ({said_shapes(batch)})"
            )
    return ""


def _other_shapes(runs: Iterable[tuple[Batch, Batch]]) -> str:
    """A sentence about the first output that has two shapes for one input shape; empty if there is none."""
    seen: dict[tuple[str, str], tuple[int, ...]] = {}
    for batch, outputs in runs:
        for name, array in outputs.items():
            before = seen.setdefault((said_shapes(batch), name), array.shape)
            if before != array.shape:
                return (
                    f"the shape of output {name} depends on the data: {list(before)} or"
                    f" {list(array.shape)} for one input shape"
                )
    return ""
