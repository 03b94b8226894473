"""A PyTorch function on a GPU as the engine of a network: sizes, staging memory and CUDA graphs.

Requests are joined in pinned memory, so each tensor of a batch takes one copy in each direction. A batch is rounded up
to a size of the configuration, where it replays that size's graph, and the answer is cut back. All decisions are here;
`pytorch_device.py` has the calls to CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from backend_batch import RequestError, batch_size
from backend_config import TRITON_TO_NUMPY, is_batched
from pytorch_device import leave, on_gpu
from pytorch_engine import reason
from pytorch_sizes import UNBATCHED, Sizes, free_inputs, read_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backend_batch import Arrays, Engine
    from backend_config import TensorSpec
    from pytorch_device import Device, Graph
    from pytorch_engine import Function

WARM_RUNS = 3
"""Runs of each size before its graph is captured: libraries choose their kernels, and TorchScript its fusions, in the
first ones."""


@dataclass(frozen=True)
class GpuFunction:
    """A function whose weights lie on the GPU, the sizes that it runs at, and a graph for each size that has one."""

    function: Function
    device: Device
    batched: bool
    sizes: Sizes
    graphs: dict[int, Graph] = field(default_factory=dict)
    cleaning: bool = False
    on_loss: Callable[[], None] = leave

    def begin(self) -> None:
        """Nothing to do: every run gives arrays of its own."""

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for the parts joined along the first axis; RequestError if it fails."""
        try:
            with self.function.running():
                return self._run(parts, outputs)
        except RequestError:
            if self.device.is_lost():
                self.on_loss()
            raise

    def _run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        rows = sum(map(batch_size, parts)) if self.batched else UNBATCHED
        size = self.sizes.rounded(rows)
        with self.device.working():
            staged = [self._staged(parts, name, rows, size) for name in self.function.arguments]
            results = self._results(size, staged)
            hosts = {name: self.device.fetch(self.function.result(results, name)) for name in outputs}
            self.device.wait()
        if self.cleaning:
            self.device.clean()
        return {name: self._cut(host.numpy(), rows, size) for name, host in hosts.items()}

    def _staged(self, parts: Sequence[Arrays], name: str, rows: int, size: int) -> Any:
        """An input of all parts in staging memory, with zeros in the rows that the size has beyond them."""
        first = parts[0][name]
        shape = (size, *first.shape[1:]) if self.batched else first.shape
        host = self.device.staging(shape, self._torch_dtype(first.dtype))
        array = host.numpy()
        if self.batched:
            np.concatenate([part[name] for part in parts], out=array[:rows])
            array[rows:] = 0
        else:
            np.copyto(array, first)
        return host

    def _results(self, size: int, staged: Sequence[Any]) -> Sequence[Any]:
        graph = self.graphs.get(size)
        if graph is not None:
            return graph.replay(staged)
        return self.function.results(*map(self.device.put, staged))

    def _cut(self, array: np.ndarray, rows: int, size: int) -> np.ndarray:
        """The requests' rows; an array whose first axis is not the batch stays, for the network to refuse."""
        is_padded = self.batched and array.ndim > 0 and len(array) == size
        return array[:rows] if is_padded else array

    def warm_up(self, inputs: Mapping[str, TensorSpec]) -> None:
        """Run each size on zeros, the largest first; ModelError if one fails."""
        for size in reversed(self.sizes.sizes):
            feed = {name: np.zeros(self._shape(spec, size), _dtype(spec)) for name, spec in inputs.items()}
            with on_gpu(self.device.torch, self._place(size)), self.function.mode():
                for _ in range(WARM_RUNS):
                    self._run([feed], list(self.function.outputs))

    def capture(self, inputs: Mapping[str, TensorSpec]) -> str:
        """Capture a graph for each size, the largest first, whose memory the others share.

        Returns:
            The reason why there are none; empty if there are.
        """
        before, largest = None, self.sizes.sizes[-1]
        with on_gpu(self.device.torch, self._place(largest)), self.function.mode(), self.device.working():
            statics = [self._static(inputs[name], largest) for name in self.function.arguments]
            for size in reversed(self.sizes.sizes):
                rows = [static[:size] if self.batched else static for static in statics]
                try:
                    before = self.graphs[size] = self.device.capture(self.function.results, rows, before)
                except Exception as error:  # RuntimeError mostly, and any class that an operator raises
                    self.graphs.clear()
                    return self._cause(error)
        return ""

    def _cause(self, error: BaseException) -> str:
        """The reason for a capture's failure: CUDA's error at its end only says that there was one before.

        Raises:
            torch.OutOfMemoryError: that was the reason, and requests would meet it too.
        """
        while error.__context__ is not None:
            error = error.__context__
        if isinstance(error, self.device.torch.OutOfMemoryError):
            raise error
        return reason(self.device.torch, error)

    def _static(self, spec: TensorSpec, size: int) -> Any:
        return self.device.static(self._shape(spec, size), self._torch_dtype(_dtype(spec)))

    def _shape(self, spec: TensorSpec, size: int) -> tuple[int, ...]:
        return (size, *spec.dims[1:]) if self.batched else spec.dims

    def _torch_dtype(self, dtype: Any) -> Any:
        return self.device.torch.from_numpy(np.empty(0, dtype)).dtype

    def _place(self, size: int) -> str:
        return f"{self.device.place}, a batch of {size}" if self.batched else f"{self.device.place}"


def _dtype(spec: TensorSpec) -> Any:
    return TRITON_TO_NUMPY[spec.dtype]


def engine_for(
    function: Function,
    device: Device | None,
    config: Mapping[str, Any],
    inputs: Mapping[str, TensorSpec],
    log: Callable[[str], None],
    cleaning: bool = False,
) -> Engine:
    """The function as an engine on its device, warmed up; `log` gets what was decided.

    Raises:
        ModelError: a size does not run, or the GPU's memory is too small.
    """
    if device is None:
        return function
    name, sizes = config.get("name", ""), read_sizes(config)
    free = free_inputs(inputs, is_batched(config))
    if free and sizes.graphs:
        log(f"model '{name}': input '{free[0]}' has a free axis, so there are no CUDA graphs")
        sizes = Sizes(sizes.sizes)

    def lose() -> None:
        log(f"model '{name}': {device.place} no longer answers this process, which ends to be started again")
        leave()

    engine = GpuFunction(function, device, is_batched(config), sizes, cleaning=cleaning, on_loss=lose)
    if not free:
        engine.warm_up(inputs)
    if sizes.graphs:
        log(f"model '{name}': {_outcome(engine.capture(inputs), engine)}")
        engine.warm_up(inputs)  # again: a capture gives staging memory back, and a failed one may have left an error
    return engine


def _outcome(refusal: str, engine: GpuFunction) -> str:
    if refusal:
        return f"served without CUDA graphs, which a lone request feels most: {refusal}"
    if not engine.batched:
        return f"a CUDA graph on {engine.device.place}"
    return f"CUDA graphs on {engine.device.place} for batches of {', '.join(map(str, engine.sizes.sizes))}"
