"""LiteRT on the CPU (XNNPACK), which runs an edge file one item after the other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import silenced
from tritonkit.repository.export.samples import Batch, said_shapes
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.text import first_line

__all__ = ["open_interpreter", "open_runner"]


class _Interpreter:
    def __init__(self, interpreter: Any, where: str) -> None:
        self._call = interpreter.get_signature_runner()
        self._shapes = {n: tuple(d["shape"]) for n, d in self._call.get_input_details().items()}
        self._where = where

    def run(self, batch: Batch) -> Batch:
        """Outputs by name; the items of a batch run one by one, as on a device."""
        import numpy as np

        if all(array.shape == self._shapes.get(name) for name, array in batch.items()):
            return self._one(batch)
        count = len(next(iter(batch.values())))
        items = [self._one({name: array[place : place + 1] for name, array in batch.items()}) for place in range(count)]
        return {name: np.concatenate([item[name] for item in items]) for name in items[0]}

    def _one(self, item: Batch) -> Batch:
        try:
            # The arrays are the interpreter's own memory, which the next item overwrites.
            return {name: array.copy() for name, array in self._call(**item).items()}
        except (ValueError, RuntimeError) as error:
            raise BuildError(
                self._where,
                found=f"LiteRT cannot run it on {said_shapes(item)}: {first_line(error)}",
                wanted=f"the shapes of the file: {self._shapes}",
            ) from error

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """The time of a whole run: LiteRT's Python interpreter has no profiler of operators."""
        self.run(batch)
        start = time.perf_counter()
        for _ in range(repeats):
            self.run(batch)
        ms = (time.perf_counter() - start) * 1000 / repeats
        return [OperatorTime("the whole network", "LiteRT has no profiler in Python", ms)]


def open_interpreter(file: Path, threads: int) -> Any:
    """A LiteRT interpreter for a file, ready to be called."""
    with silenced():
        interpreter = need("ai_edge_litert.interpreter", "tflite").Interpreter(str(file), num_threads=threads)
        interpreter.allocate_tensors()
    return interpreter


def open_runner(folder: Path, threads: int, where: str) -> _Interpreter:
    """The model.tflite in `folder`."""
    try:
        return _Interpreter(open_interpreter(folder / "model.tflite", threads), where)
    except (ValueError, RuntimeError) as error:
        raise BuildError(where, found=f"LiteRT refuses model.tflite: {first_line(error)}") from error
