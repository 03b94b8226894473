"""Metrics of a network's outputs and of the reference's: ready ones, the spec's own, or R2, with an interval for the
drop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import worsening
from tritonkit.repository.export.closeness import item_r2, worst_group
from tritonkit.repository.export.groups import find_groups
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.ready.prepared import PreparedSamples
from tritonkit.repository.export.ready.scoring import score_ready
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.quality import LESS_IS_BETTER, Metric, ready_metric

__all__ = ["Score", "bootstrap_drop", "score", "score_outputs", "score_rest"]

_RESAMPLES = 2000
_LEVEL = 0.95
_INDICES = 2**14  # item indices drawn together: they fit into the processor's cache


@dataclass(frozen=True)
class Score:
    """A metric of the variant and of the reference, also item by item if the metric supports that."""

    name: str
    value: float
    reference: float
    items: tuple[Any, Any] | None = None
    parts: dict[str, float] = field(default_factory=dict)
    """The default metric's score of each output or group of columns."""
    less_is_better: bool = False
    covered: frozenset[str] | None = None
    """The network's outputs that a ready metric depends on; None for the others, which get all of them."""

    @property
    def rank(self) -> float:
        """The value, turned around where less is better."""
        return -self.value if self.less_is_better else self.value

    def change_to(self, other: Score) -> tuple[float, str]:
        """The distance by which another score is worse, and a phrase that says so."""
        verb = "rises" if self.less_is_better else "falls"
        worse = worsening(self.value, other.value, self.less_is_better)
        return worse, f"{self.name} {verb} from {self.value:.4f} alone to {other.value:.4f}"


def score_outputs(
    spec: Spec, outputs: Sequence[Batch], reference: Sequence[Batch], prepared: PreparedSamples | None = None
) -> Score:
    """The metric by which a variant is judged, for batched outputs."""
    return score(spec, spec.model.quality.metric, "quality.metric", outputs, reference, True, prepared)


def bootstrap_drop(outputs: Any, reference: Any) -> tuple[float, float]:
    """The 95 % interval of mean(reference) - mean(outputs), both float [items].

    Paired bootstrap: items are drawn with replacement, both scores of an item together (Efron and
    Tibshirani 1993, chapter 13); percentiles of 2000 seeded draws.
    """
    import numpy as np

    drop = np.asarray(reference, dtype=np.float64) - np.asarray(outputs, dtype=np.float64)
    random = np.random.default_rng(0)
    at_once = max(1, _INDICES // len(drop))
    means = [
        drop[random.integers(0, len(drop), (min(at_once, _RESAMPLES - done), len(drop)))].mean(axis=1)
        for done in range(0, _RESAMPLES, at_once)
    ]
    outside = (1 - _LEVEL) / 2
    low, high = np.quantile(np.concatenate(means), (outside, 1 - outside))
    return float(low), float(high)


def score(
    spec: Spec,
    metric: str | Metric | None,
    field: str,
    outputs: Sequence[Batch],
    reference: Sequence[Batch],
    batched: bool,
    prepared: PreparedSamples | None = None,
) -> Score:
    """A metric of the outputs and of the reference's: a ready one, or a function of the model's folder; R2 without one.

    BuildError if no output fits a ready metric, or the function returns anything but one finite number, or one for each
    item.

    Args:
        prepared: the samples, which ready metrics need.
    """
    if metric is None:
        return _default_score(spec, outputs, reference, batched)
    ready = ready_metric(metric)
    if ready is None:
        return _own_score(spec, str(metric), field, outputs, reference)
    judged = score_ready(spec, ready, field, prepared or PreparedSamples([]), outputs, reference, batched)
    less = ready.name in LESS_IS_BETTER
    if isinstance(judged.value, float):
        return Score(ready.title, judged.value, judged.reference, less_is_better=less, covered=judged.covered)
    values = float(judged.value.mean()), float(judged.reference.mean())
    return Score(ready.title, *values, (judged.value, judged.reference), less_is_better=less, covered=judged.covered)


def score_rest(
    spec: Spec, scores: Sequence[Score], outputs: Sequence[Batch], reference: Sequence[Batch], batched: bool
) -> list[Score]:
    """R2 of each output that no metric depends on: ready metrics look at one output, and each is judged."""
    if any(score.covered is None for score in scores):
        return []
    seen = frozenset[str]().union(*(score.covered or () for score in scores))
    rest = []
    for name in (name for name in reference[0] if name not in seen):
        own, expected = ([{name: batch[name]} for batch in batches] for batches in (outputs, reference))
        rest.append(replace(_default_score(spec, own, expected, batched), name=f"R2 of {name}"))
    return rest


def _own_score(spec: Spec, hook: str, field: str, outputs: Sequence[Batch], reference: Sequence[Batch]) -> Score:
    """The score by a function of the model's folder."""
    function = load_hook(spec, hook, field)
    value, base = function(outputs, reference), function(reference, reference)
    name = hook.split(":")[1]
    items = sum(map(count_items, outputs))
    figures, bases = _numbers(value), _numbers(base)
    if not figures or len(figures) != len(bases) or not all(map(math.isfinite, figures + bases)):
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{hook} returned {_short(value)}, and {_short(base)} for the reference",
            wanted="a finite number, more is better; or an array with one for each item",
            todo="correct the function: NaN and infinity cannot be compared with a limit",
        )
    if len(figures) == 1:
        return Score(name, figures[0], bases[0])
    if len(figures) != items:
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{hook} returned {len(figures)} scores for {items} items",
            wanted="one score for each item, or one number for all",
        )
    import numpy as np

    both = np.array(figures), np.array(bases)
    return Score(name, float(both[0].mean()), float(both[1].mean()), both)


def _default_score(spec: Spec, outputs: Sequence[Batch], reference: Sequence[Batch], batched: bool) -> Score:
    """R2 of the output, or group of its columns, that differs most from the reference."""
    groups = find_groups(reference, batched)
    scores = item_r2(groups, outputs, reference, spec.model.quality.tolerance.absolute)
    _, items = worst_group(scores)
    parts = {label: float(score.mean()) for label, score in scores.items()}
    return Score("R2", float(items.mean()), 1.0, (items, items * 0 + 1), parts)


def _numbers(value: Any) -> list[float]:
    """A number, or a one-dimensional array of them; empty for anything else."""
    import numpy as np

    try:
        array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        return []
    return [float(one) for one in array] if array.ndim == 1 else []


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
