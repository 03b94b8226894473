"""treelite's own predictor (GTIL) on the CPU, by which Triton's FIL backend runs a checkpoint there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.repository.optimize.variants.fil import FILE
from tritonkit.repository.trees.to_treelite import OUTPUT_NAME
from tritonkit.text import first_line

__all__ = ["open_runner"]


class _Forest:
    def __init__(self, model: Any, threads: int, where: str) -> None:
        self._output: str = json.loads(model.get_header_accessor().get_field("attributes"))[OUTPUT_NAME]
        self._model, self._threads, self._where = model, threads, where

    def run(self, batch: Batch) -> Batch:
        """The output by its name, [batch, outputs]; the only input may have its name in the backend."""
        (rows,) = batch.values()
        try:
            answers = need("treelite.gtil", "fil").predict(self._model, rows, nthread=self._threads)
        except Exception as error:  # treelite's errors are RuntimeErrors and ValueErrors of several kinds
            raise cannot_run(self._where, "treelite", batch, first_line(error)) from error
        return {self._output: np.asarray(answers, np.float32).reshape(len(rows), -1)}

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """The time of a whole run, which has no operators."""
        self.run(batch)
        start = time.perf_counter()
        for _ in range(repeats):
            self.run(batch)
        return [OperatorTime("all trees", "treelite", (time.perf_counter() - start) * 1000 / repeats)]


def open_runner(folder: Path, threads: int, where: str) -> _Forest:
    """The checkpoint.tl in `folder`."""
    treelite = need("treelite", "fil")
    try:
        return _Forest(treelite.Model.deserialize(folder / FILE), threads, where)
    except Exception as error:
        raise BuildError(where, found=f"treelite does not read {FILE}: {first_line(error)}") from error
