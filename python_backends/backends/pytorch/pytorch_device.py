"""The GPU of an instance, by `torch.cuda` alone: staging memory, copies, one stream, and CUDA graphs."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_config import ModelError
from pytorch_engine import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

NO_CUDA = "this environment's PyTorch has no CUDA: tritonkit server install --gpu --torch"
LEAVE_S = 1.0
"""Seconds before a process without its GPU ends: its last answers leave in that time."""


@dataclass(frozen=True)
class Graph:
    """A captured run: the tensors on the GPU that it reads, and those that it writes."""

    graph: Any  # torch.cuda.CUDAGraph
    inputs: Sequence[Any]
    outputs: Sequence[Any]

    def replay(self, staged: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs in staging memory; the next replay overwrites them."""
        for static, host in zip(self.inputs, staged, strict=True):
            static.copy_(host, non_blocking=True)
        self.graph.replay()
        return self.outputs


@dataclass(frozen=True)
class Device:
    """One GPU, and the stream of this instance."""

    torch: Any
    place: Any  # torch.device
    stream: Any  # torch.cuda.Stream

    def capability(self) -> int:
        """The compute capability in tenths: 90 is 9.0."""
        major, minor = self.torch.cuda.get_device_capability(self.place)
        return int(10 * major + minor)

    def staging(self, shape: Sequence[int], dtype: Any) -> Any:
        """Pinned memory of the host, which PyTorch keeps for the next tensor of this size when it is dropped."""
        return self.torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def static(self, shape: Sequence[int], dtype: Any) -> Any:
        """A tensor of zeros on the GPU, at an address that graphs may keep."""
        return self.torch.zeros(tuple(shape), dtype=dtype, device=self.place)

    def put(self, host: Any) -> Any:
        """Begin to copy staging memory to the GPU."""
        return host.to(self.place, non_blocking=True)

    def fetch(self, tensor: Any) -> Any:
        """Begin to copy a result into staging memory; it is there after `wait`."""
        return self.staging(tensor.shape, tensor.dtype).copy_(tensor, non_blocking=True)

    def wait(self) -> None:
        """Wait for everything that was begun."""
        self.stream.synchronize()

    def working(self) -> Any:
        """The context in which work goes to the stream."""
        return self.torch.cuda.stream(self.stream)

    def capture(self, run: Callable[..., Sequence[Any]], inputs: Sequence[Any], before: Graph | None) -> Graph:
        """A graph of one run, in the memory of the graph before: only one of them replays at a time."""
        graph = self.torch.cuda.CUDAGraph()
        pool = None if before is None else before.graph.pool()
        with self.torch.cuda.graph(graph, pool=pool, stream=self.stream):
            outputs = run(*inputs)
        return Graph(graph, inputs, outputs)

    def clean(self) -> None:
        """Give memory that no tensor and no graph holds back to the GPU's other processes."""
        self.torch.cuda.empty_cache()

    def is_lost(self) -> bool:
        """Whether an earlier failure made the GPU useless for this process: CUDA then fails every call."""
        try:
            self.torch.cuda.synchronize(self.place)
        except RuntimeError:
            return True
        return False


def open_device(torch: Any, args: Mapping[str, str]) -> Device | None:
    """The GPU that Triton assigned to the instance; None for an instance on the CPU."""
    if args["model_instance_kind"] != "GPU":
        return None
    _check_cuda(torch)
    index, count = int(args["model_instance_device_id"]), torch.cuda.device_count()
    if index >= count:
        raise ModelError(
            f"instance_group gpus: found {index}; PyTorch sees {count} GPU{'s' * (count > 1)}, wanted 0 to {count - 1}"
        )
    place = torch.device("cuda", index)
    with on_gpu(torch, f"{place}"):
        torch.cuda.set_device(place)
        return Device(torch, place, torch.cuda.Stream(place))


@contextlib.contextmanager
def on_gpu(torch: Any, where: str) -> Iterator[None]:
    """Turn a failure while a model loads into a ModelError."""
    try:
        yield
    except Exception as error:  # RuntimeError mostly, and any class that an operator raises
        raise ModelError(f"{where}: {reason(torch, error)}") from error


def leave() -> None:
    """End this process soon: `tritonkit serve` then loads the model again, with a working GPU."""
    timer = threading.Timer(LEAVE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _check_cuda(torch: Any) -> None:
    if not torch.backends.cuda.is_built():
        raise ModelError(f"instance kind GPU found; {NO_CUDA}")
    if not torch.cuda.is_available():
        raise ModelError(
            f"instance kind GPU found; PyTorch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU that it"
            " can use: tritonkit doctor shows the driver and its GPUs"
        )
