"""Compare forms of one ONNX network with its FP32 outputs, and find the layers that must stay FP32."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session, run_session, session_options
from tritonkit.repository.export.samples import Batch, first_items
from tritonkit.repository.optimize.variants.onnx_graph import save

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["LayerSearch", "layers_to_exclude"]

# Most layers that are tried one at a time; those of a deeper network are tried in groups of neighbors.
MOST_TRIALS = 40
_PROBE_ITEMS = 8
"""Number of items used to rank layers; the decision uses closeness on all calibration data."""
_SHARE_OF_DROP = 0.8
"""Share of max_drop by which closeness may fall: a fifth is left for data other than calibration data."""

Closeness = Callable[[Collection[str]], float]
"""Function from the layers that stay in full precision to the network's closeness."""


class LayerSearch:
    """A search for the layers of a network that must stay FP32, by its FP32 outputs on `optimize.calibration`.

    `target` is the closeness (`Job.closeness`) to reach; without it, 1 - 0.8 x `quality.max_drop`. Without
    `layouts` ONNX Runtime may not change the layout of tensors. Versions 1.24 to 1.31 are faster with layout changes,
    but may crash if there are casts from FP16.
    """

    def __init__(self, job: Job, target: float | None = None, *, layouts: bool = True) -> None:
        self.job = job
        self.where = str(job.spec.file)
        self._layouts = layouts
        self.target = target or 1 - job.spec.model.quality.max_drop * _SHARE_OF_DROP

    def closeness(self, model: Any) -> float:
        """Closeness of a model's outputs to the FP32 ones, on all calibration data."""
        return self.job.closeness(self._runner(model))

    def layers_to_exclude(
        self, layers: Sequence[str], write: Callable[[Collection[str]], Any]
    ) -> tuple[str, ...] | None:
        """The layers to leave in full precision; `write` makes the model from the layers that stay so."""
        return layers_to_exclude(
            layers,
            lambda floats: self._probe(write(floats)),
            lambda floats: self.closeness(write(floats)),
            self.target,
            self.job.say,
        )

    def reached(self, closeness: float) -> str:
        """A note with the closeness that was reached."""
        short = f", below the {self.target:g} aimed at" if closeness < self.target else ""
        return f"{self.job.yardstick.name} {closeness:.5f} to FP32 on the calibration data{short}"

    def _probe(self, model: Any) -> float:
        batches, reference = self._few
        run = self._runner(model)
        return self.job.yardstick.mean([run(batch) for batch in batches], reference)

    @cached_property
    def _few(self) -> tuple[list[Batch], list[Batch]]:
        """The first items of the calibration data, and the FP32 network's outputs for them."""
        batches = first_items(self.job.calibration, _PROBE_ITEMS, self.job.batched)
        session = open_session(self.job.onnx, self.where)
        return batches, [run_session(session, batch, self.where) for batch in batches]

    def _runner(self, model: Any) -> Callable[[Batch], Batch]:
        ort = need("onnxruntime", "build")
        options = session_options()
        if not self._layouts:
            level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.graph_optimization_level = level
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "attempt.onnx"
            save(model, file)
            session = open_session(file, self.where, options=options)
        return lambda batch: run_session(session, batch, self.where)


def layers_to_exclude(
    layers: Sequence[str],
    probe: Closeness,
    closeness: Closeness,
    target: float,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...] | None:
    """The fewest layers to leave in full precision to reach the requested closeness, in the network's order.

    Layers are ranked by the closeness that each costs when it alone loses precision. `probe`, which uses a few items
    and is quick, measures that. Errors of a few percent add up, so the first layers of that ranking are left out.
    Their number is found by doubling, then by bisection, with `closeness`, which decides. None if leaving out all
    layers is not enough.
    """
    groups = _groups(layers)
    if closeness(layers) < target:
        return None
    costs = []
    for place, group in enumerate(groups):
        say(f"trying layer {place + 1} of {len(groups)}")
        costs.append(1 - probe([name for name in layers if name not in group]))
    ranked = sorted(range(len(groups)), key=lambda place: -costs[place])

    def first(count: int) -> tuple[str, ...]:
        return tuple(name for place in sorted(ranked[:count]) for name in groups[place])

    def enough(count: int) -> bool:
        say(f"leaving {len(first(count))} of {len(layers)} layers in full precision")
        return closeness(first(count)) >= target

    low, high = 0, 1  # `low` are not enough
    while high < len(groups) and not enough(high):
        low, high = high, min(2 * high, len(groups))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return first(high)


def _groups(layers: Sequence[str]) -> list[list[str]]:
    """At most `MOST_TRIALS` groups of neighbors, as even as can be."""
    count = min(MOST_TRIALS, len(layers))
    edges = [place * len(layers) // count for place in range(count + 1)] if count else []
    return [list(layers[start:stop]) for start, stop in pairwise(edges)]
