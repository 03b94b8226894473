"""OpenVINO on the CPU, with the settings its stand-in serves with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.optimize.openvino_core import compile_for_cpu, first_reason, open_core
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.watched import step

__all__ = ["OpenVINORunner", "open_runner"]

_SOME_BATCH = 5
_KEPT = 4  # compiled shapes: each holds the weights once more


class OpenVINORunner:
    """A network that is compiled for each shape it gets; the last few are kept.

    A network with a free axis in addition to the batch is compiled for any shape, as in the stand-in. It computes in
    `precision`, else in the precision that the model's file names, else in FP32.
    """

    def __init__(self, model: Any, threads: int, where: str, precision: str | None = None) -> None:
        self._model = model
        self._where = where
        self._threads = threads
        self._precision = precision
        inputs = (node.get_partial_shape() for node in model.inputs)
        self._any_shape = any(dim.is_dynamic for shape in inputs for dim in list(shape)[1:])
        self._requests: OrderedDict[Any, Any] = OrderedDict()

    def run(self, batch: Batch) -> Batch:
        """Outputs by name, as arrays of their own."""
        with self._blame(batch):
            request = self._request(batch)
            _infer(request, batch)
            return {node.get_any_name(): request.get_tensor(node).data.copy() for node in self._model.outputs}

    def output_shapes(self, batched: bool) -> dict[str, tuple[int, ...]]:
        """Output name -> its sizes at a given batch size, without the batch axis, -1 for a free size. The backend
        compares these with the configuration."""
        model = self._model
        if batched:
            model = model.clone()
            shapes = {node.get_any_name(): node.get_partial_shape() for node in model.inputs}
            for shape in shapes.values():
                shape[0] = _SOME_BATCH
            model.reshape(shapes)
        return {
            node.get_any_name(): tuple(dim.get_length() if dim.is_static else -1 for dim in node.get_partial_shape())[
                int(batched) :
            ]
            for node in model.outputs
            if not node.get_partial_shape().rank.is_dynamic
        }

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean time of each operator that ran, by OpenVINO's own counters, in order of execution."""
        with self._blame(batch):
            request = self._compiled(batch, PERF_COUNT=True).create_infer_request()
            _infer(request, batch)  # the first run finds memory and kernels
            seconds: dict[tuple[str, str], float] = {}
            for _ in range(repeats):
                _infer(request, batch)
                for info in request.profiling_info:
                    if info.status == info.Status.EXECUTED:
                        key = info.node_name, info.node_type
                        seconds[key] = seconds.get(key, 0.0) + info.real_time.total_seconds()
        return [OperatorTime(*key, 1000 * total / repeats) for key, total in seconds.items()]

    def _request(self, batch: Batch) -> Any:
        key = None if self._any_shape else tuple(sorted((n, a.shape) for n, a in batch.items()))
        if key not in self._requests:
            self._requests[key] = self._compiled(batch).create_infer_request()
            if len(self._requests) > _KEPT:
                self._requests.popitem(last=False)
        self._requests.move_to_end(key)
        return self._requests[key]

    def _compiled(self, batch: Batch, **more: Any) -> Any:
        model = self._model
        if not self._any_shape:
            model = model.clone()
            model.reshape({name: list(array.shape) for name, array in batch.items()})
        return compile_for_cpu(model, self._threads, self._precision, **more)

    @contextmanager
    def _blame(self, batch: Batch) -> Iterator[None]:
        try:
            with step("OpenVINO runs the network"):
                yield
        except RuntimeError as error:
            raise cannot_run(self._where, "OpenVINO", batch, first_reason(error)) from error


def open_runner(folder: Path, threads: int, where: str) -> OpenVINORunner:
    """The model.xml and model.bin in `folder`."""
    try:
        with step("OpenVINO opens model.xml"):
            model = open_core().read_model(folder / "model.xml")
    except RuntimeError as error:
        raise BuildError(where, found=f"OpenVINO refuses model.xml: {first_reason(error)}") from error
    return OpenVINORunner(model, threads, where)


def _infer(request: Any, batch: Batch) -> None:
    import numpy as np

    tensor = need("openvino", "optimize").Tensor
    for name, array in batch.items():
        request.set_tensor(name, tensor(np.asarray(array, order="C")))
    request.infer()
