"""Try forms of one ONNX network against its FP32 outputs, and find which layers must stay FP32."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.export.closeness import mean_cosine
from tritonkit.export.onnx_file import open_session, run_session
from tritonkit.export.samples import Batch, first_items
from tritonkit.extras import need
from tritonkit.optimize.variants.onnx_graph import save
from tritonkit.optimize.variants.sensitivity import layers_to_exclude

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["Search"]

_PROBE_ITEMS = 8
"""By which layers are ranked; what counts is closeness on all calibration data."""
_SHARE_OF_DROP = 0.8
"""Of max_drop, that closeness may fall by: a fifth is left for other data than the calibration's."""


class Search:
    """One network on its way to another precision.

    Args:
        job: whose FP32 outputs on `optimize.calibration` are compared with.
        wanted: closeness (mean cosine) to reach; without it, 1 - 0.8 x `quality.max_drop`.
        layouts: whether ONNX Runtime may change the layout of tensors. It is faster so, and 1.24 to 1.31
            may die of it where there are casts from FP16.
    """

    def __init__(self, job: Job, wanted: float | None = None, *, layouts: bool = True) -> None:
        self.job = job
        self.where = str(job.spec.file)
        self._layouts = layouts
        self.wanted = wanted or 1 - job.spec.model.quality.max_drop * _SHARE_OF_DROP

    def closeness(self, model: Any) -> float:
        """Of a model's outputs to the FP32 ones, on all calibration data."""
        return self.job.closeness(self._runner(model))

    def layers_to_exclude(
        self, layers: Sequence[str], write: Callable[[Collection[str]], Any]
    ) -> tuple[str, ...] | None:
        """The layers to leave in full precision; None where all of them are not enough.

        `write` makes the model in which those it is given are.
        """
        return layers_to_exclude(
            layers, lambda floats: self._probe(write(floats)),
            lambda floats: self.closeness(write(floats)), self.wanted, self.job.say,
        )  # fmt: skip

    def said(self, closeness: float) -> str:
        """A note of what was reached."""
        short = f", below the {self.wanted:g} aimed at" if closeness < self.wanted else ""
        return f"mean cosine {closeness:.5f} to FP32 on the calibration data{short}"

    def _probe(self, model: Any) -> float:
        batches, wanted = self._few
        run = self._runner(model)
        return mean_cosine([run(batch) for batch in batches], wanted)

    @cached_property
    def _few(self) -> tuple[list[Batch], list[Batch]]:
        """The first items of the calibration data, and what the FP32 network gives for them."""
        batches = first_items(self.job.calibration, _PROBE_ITEMS, self.job.batched)
        session = open_session(self.job.onnx, self.where)
        return batches, [run_session(session, batch, self.where) for batch in batches]

    def _runner(self, model: Any) -> Callable[[Batch], Batch]:
        ort = need("onnxruntime", "build")
        options = ort.SessionOptions()
        if not self._layouts:
            level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.graph_optimization_level = level
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "attempt.onnx"
            save(model, file)
            session = open_session(file, self.where, options=options)
        return lambda batch: run_session(session, batch, self.where)
