"""PyTorch with a GPU that is not there: `torch.cuda` alone is replaced, and the rest is PyTorch on the CPU.

Tensors "on the GPU" are copies in the host's memory. A capture records PyTorch's operators, and a replay runs them on
the same tensors again, so a graph reads and writes the addresses that it was captured with, as CUDA's does.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU = {"model_instance_kind": "GPU", "model_instance_device_id": "0"}
"""Triton's arguments for an instance on the first GPU."""
NOT_CAPTURED = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.item.default,
}
"""Operators that wait for the GPU, which CUDA forbids while it captures."""


@dataclass
class Gpu:
    """The machine's GPUs, and what became of them."""

    count: int = 1
    capability: tuple[int, int] = (9, 0)
    failure: Exception | None = None
    """The error of each call from now on, as after a fault in a kernel."""
    full: bool = False
    """Whether the next capture finds no memory."""
    replays: int = 0
    cleanings: int = 0
    loaded: list[str] = field(default_factory=list)
    """The place of each TorchScript file that was loaded."""
    no_load: Exception | None = None
    """The error of loading one."""
    pools: list[int] = field(default_factory=list)
    """The pool of each capture's memory."""

    def check(self) -> None:
        """Fail as CUDA does after a fault."""
        if self.failure is not None:
            raise self.failure

    def load(self, read: Any, path: Any, map_location: Any) -> Any:
        """Load a TorchScript file."""
        self.loaded.append(str(map_location))
        if self.no_load is not None:
            raise self.no_load
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is deprecated, and what the pytorch backend loads
            return read(path, map_location="cpu")

    def clean(self) -> None:
        """Count that free memory is given back."""
        self.cleanings += 1


class _HostMemory(TorchFunctionMode):
    """Tensors of the GPU and pinned tensors in the host's memory."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        values = {name: _on_host(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if func is torch.Tensor.to:
            values["copy"] = True
        if func is torch.device:
            return func(*args, **values)
        return func(*map(_on_host, args), **values)


def _on_host(value: Any) -> Any:
    on_gpu = isinstance(value, torch.device | str) and str(value).startswith("cuda")
    return torch.device("cpu") if on_gpu else value


class _Recorder(TorchDispatchMode):
    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in NOT_CAPTURED:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


class _Stream:
    def __init__(self, gpu: Gpu, place: Any = None) -> None:
        gpu.check()
        self.synchronize = gpu.check


class _Graph:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.calls: list[Any] = []

    def pool(self) -> int:
        return self.gpu.pools[0]

    def replay(self) -> None:
        self.gpu.check()
        self.gpu.replays += 1
        for func, args, kwargs, results in self.calls:
            for old, new in zip(tree_leaves(results), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextlib.contextmanager
def _capture(gpu: Gpu, graph: _Graph, pool: int | None, stream: _Stream) -> Iterator[None]:
    """The context of a capture; as in CUDA, an error inside leads to one at its end, which hides it."""
    gpu.pools.append(len(gpu.pools) if pool is None else pool)
    try:
        with _Recorder(graph.calls):
            if gpu.full:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
            yield
    except Exception:
        raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture") from None


def install(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """Replace the parts of `torch.cuda` that are used."""
    replacements = {
        "is_available": lambda: gpu.count > 0,
        "device_count": lambda: gpu.count,
        "get_device_capability": lambda place: gpu.capability,
        "set_device": lambda place: gpu.check(),
        "synchronize": lambda place: gpu.check(),
        "empty_cache": gpu.clean,
        "Stream": partial(_Stream, gpu),
        "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": partial(_Graph, gpu),
        "graph": partial(_capture, gpu),
    }
    for name, value in replacements.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.jit, "load", partial(gpu.load, torch.jit.load))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A machine with one GPU."""
    machine = Gpu()
    install(monkeypatch, machine)
    with _HostMemory():
        yield machine
