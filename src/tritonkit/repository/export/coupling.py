"""Dependence of a rounded network's answers on the other items of a batch, judged by the spec's metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.export.outliers import batch_gain, moves, score_next_to
from tritonkit.repository.export.ready.prepared import PreparedSamples
from tritonkit.repository.export.samples import Batch, count_items, first_items
from tritonkit.repository.export.scores import score_outputs
from tritonkit.repository.modelspec import Spec

__all__ = ["judge_neighbors"]

_MOST = 64
"""Number of items for the default metric; a spec's own metric may need all items."""


def judge_neighbors(
    spec: Spec,
    run: Callable[[Batch], Batch],
    samples: Sequence[Batch],
    seen: str = "",
    prepared: PreparedSamples | None = None,
) -> Independence:
    """Check that answers next to an outlier stay within `quality.max_drop` of the answers alone.

    `seen` is earlier evidence that the two are not equal, if that was tried.
    """
    quality = spec.model.quality
    kinds = moves(run, samples, quality.tolerance)
    if not kinds:
        if seen:
            return Independence("coupled", seen)
        return Independence("proven", "outliers next to an item do not change its answer")
    if quality.metric is None:
        samples = first_items(samples, _MOST, True)
    alone = [_alone(run, batch) for batch in samples]
    best = score_outputs(spec, alone, alone, prepared)
    worst = score_next_to(run, samples, kinds, lambda outputs: score_outputs(spec, outputs, alone, prepared))
    worse, change = best.change_to(worst.score)
    change = f"next to {worst.neighbor}, {change}"
    if worse <= quality.max_drop:
        return Independence("proven", f"within quality.max_drop: {change}")
    gain = batch_gain(run, {n: array[:1] for n, array in samples[0].items()})
    return Independence(
        "coupled",
        f"{seen or 'rounding depends on the other items'}: {change}; one item at a time costs speed: batches of 8 give"
        f" {gain:.1f} times the items per second. INT8 with a range for each row can be batched:"
        " onnx-int8-dynamic of the FP32 network",
    )


def _alone(run: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """Outputs of a batch whose items run one by one."""
    import numpy as np

    rows = [run({n: a[i : i + 1] for n, a in batch.items()}) for i in range(count_items(batch))]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
