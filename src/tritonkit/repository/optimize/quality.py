"""Quality of a variant compared with the unchanged network: the spec's metrics, and the drop's interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import MeasuredQuality
from tritonkit.repository.export.check import TRAINING_MODE, compare
from tritonkit.repository.export.closeness import differences
from tritonkit.repository.export.edges import settle_edges
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.export.scores import bootstrap_drop, score, score_rest
from tritonkit.repository.export.torch_module import run_module

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job
    from tritonkit.repository.optimize.runner import Runs

__all__ = ["Reference", "measure"]

_SINGLES = 2  # number of items that also run alone: a network that only works at the exported batch size fails on them


@dataclass(frozen=True)
class Reference:
    """The network's outputs for its samples, followed by outputs for the first items alone."""

    name: str
    """The source of the outputs: the PyTorch module, the teacher, or ONNX Runtime with every graph optimization off.
    For a file that is not FP32 it is the file itself, as it is served."""
    batches: Sequence[Batch]
    outputs: Sequence[Batch]
    samples: int
    """Number of batches that are samples: metrics use only those."""

    @classmethod
    def of(cls, job: Job) -> Reference:
        """Run the network once on the samples and on their first items."""
        spec, batches, first = job.spec, list(job.samples), job.samples[0]
        if job.batched and not job.one_by_one:
            alone = range(min(_SINGLES, count_items(first)))
            batches += [{n: a[i : i + 1] for n, a in first.items()} for i in alone]
        if spec.model.network.torch is not None:
            name = "the teacher" if job.transformed and spec.model.optimize.teacher else "PyTorch"
            module = job.teacher() if job.transformed else job.module()
            with job.advised():
                outputs = [run_module(spec, module, batch) for batch in batches]
        else:
            where, exact = f"{spec.file} network.onnx", not job.number_format
            # The optimized graph determines the rounding, because it fuses the rounding of adjacent operators.
            name = "ONNX Runtime without optimizations" if exact else f"the {job.number_format} file"
            session = open_session(job.source, where, optimized=not exact)
            with job.advised():
                outputs = [run_session(session, batch, where) for batch in batches]
        return cls(name, batches, outputs, len(job.samples))


def _refuse_changing(job: Job, runner: Runs, batch: Batch) -> None:
    """Raise BuildError if the network answers the same input differently each time, since its runs cannot be
    compared."""
    network = job.spec.model.network
    changing = "the network" if _changes(runner.run, batch) else ""
    if not changing and network.torch is not None and not job.transformed:
        module = job.module()
        if _changes(lambda given: run_module(job.spec, module, given), batch):
            changing = "the PyTorch module"
    if changing:
        raise BuildError(
            f"{job.spec.file} network.{'onnx' if network.torch is None else 'torch'}",
            found=f"{changing} answers the same input differently each time",
            wanted="the same answer to the same input; otherwise the served file cannot be checked",
            todo="take out what draws random numbers (RandomNormalLike, dropout outside of evaluation mode) or make"
            " them an input; take out state that a call leaves to the next one, or make it an input and an output",
        )


def _changes(run: Callable[[Batch], Batch], batch: Batch) -> bool:
    import numpy as np

    first, second = run(batch), run(batch)
    return any(
        first[name].shape != second[name].shape
        or not np.array_equal(first[name], second[name], equal_nan=first[name].dtype.kind == "f")
        for name in first
    )


def measure(job: Job, runner: Runs, *, lossless: bool, file: Path | None = None) -> MeasuredQuality:
    """Run a variant on the held-out samples and compare it with the reference.

    BuildError where its outputs differ in kind, or where a metric fails or is not a number.

    Args:
        file: the network as ONNX, which shows the differences that rounding explains.
    """
    reference, spec = job.reference, job.spec
    job.say("measuring quality")
    given = [runner.run(batch) for batch in reference.batches]
    compared, largest, edges = _compared(job, runner, given, lossless=lossless, file=file)
    quality, count = spec.model.quality, reference.samples
    compared, outputs = compared[:count], reference.outputs[:count]
    # The spec's own metric judges the variant's unchanged outputs.
    judged = compared if quality.metric is None else given[:count]
    main = score(spec, quality.metric, "quality.metric", judged, outputs, job.batched, job.prepared)
    also = [
        score(spec, metric, f"quality.also.{place}", given[:count], outputs, job.batched, job.prepared)
        for place, metric in enumerate(quality.also)
    ]
    if quality.metric is not None:
        also += score_rest(spec, (main, *also), given[:count], outputs, job.batched)
    low, high = bootstrap_drop(*main.items) if main.items else (None, None)
    return MeasuredQuality(
        metric=main.name,
        value=main.value,
        reference=main.reference,
        max_difference=largest,
        samples=sum(map(count_items, reference.batches[:count])),
        drop_low=low,
        drop_high=high,
        also={score.name: (score.value, score.reference) for score in also},
        differences=differences(compared, outputs),
        against=reference.name,
        parts=main.parts,
        edges=edges,
        less_is_better=tuple(score.name for score in (main, *also) if score.less_is_better),
    )


def _compared(
    job: Job, runner: Runs, outputs: list[Batch], *, lossless: bool, file: Path | None
) -> tuple[Sequence[Batch], float, str]:
    """The outputs to judge, their largest difference from the reference's, and a sentence on values that rounding
    decides.

    BuildError if other values differ too much.
    """
    spec, reference = job.spec, job.reference
    try:
        return (outputs, compare(spec, reference.batches, outputs, reference.outputs, lossless=lossless), "")
    except BuildError as error:
        if error.todo == TRAINING_MODE:
            _refuse_changing(job, runner, reference.batches[0])
        if not lossless or file is None or set(outputs[0]) != set(reference.outputs[0]):
            raise
        job.say("looking for decisions that rounding turns over")
        settled, edges = settle_edges(file, reference.batches, outputs, reference.outputs, spec.model.quality.tolerance)
        try:
            return (settled, compare(spec, reference.batches, settled, reference.outputs, lossless=True), edges)
        except BuildError:
            raise error from None
