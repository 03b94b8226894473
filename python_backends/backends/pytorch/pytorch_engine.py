"""A PyTorch function as the engine of a network: TorchScript, or a compiled package."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_batch import RequestError, joined
from backend_config import ModelError
from pytorch_config import NO_TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backend_batch import Arrays
    from pytorch_config import Options

MEMORY = (
    "wanted memory for the weights and the largest batch: lower instance_group count or max_batch_size, or end other"
    " processes on the GPU"
)


def load_torch(options: Options, threads: int) -> Any:
    """PyTorch, with the threads that the configuration gives an instance; ModelError without it.

    Args:
        threads: the number for a configuration that gives none.
    """
    # Workers that spin while they wait take cores from Triton and from other models. libgomp reads
    # this when torch loads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModelError(NO_TORCH) from None
    torch.set_num_threads(options.intra_op or threads)
    # It may be set only once; an instance is a process of its own, so this is the first time.
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(options.inter_op or threads)
    return torch


def set_precision(torch: Any, tf32: bool | None) -> None:
    """Let a GPU compute FP32 products in TF32, or as FP32; None keeps PyTorch's choice, TF32 for convolutions alone."""
    if tf32 is None:
        return
    # PyTorch's newer names for this, once set, make others of its functions fail.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


@dataclass(frozen=True)
class Function:
    """A callable on tensors: `inputs` and `outputs` give each name its position."""

    torch: Any
    call: Callable[..., Any]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    inference_mode: bool = True

    @property
    def arguments(self) -> list[str]:
        """The inputs' names in the order of the callable."""
        return sorted(self.inputs, key=self.inputs.__getitem__)

    def begin(self) -> None:
        """Nothing to do: every run gives arrays of its own."""

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for the parts joined along the first axis; RequestError if it fails."""
        feed = joined(parts)
        with self.running():
            results = self.results(*(self.torch.from_numpy(feed[name]) for name in self.arguments))
        return {name: self.result(results, name).numpy() for name in outputs}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A context without gradients, in which PyTorch's errors become a RequestError."""
        try:
            with self.mode():
                yield
        except RequestError:
            raise
        except Exception as error:  # RuntimeError mostly, and any class that an operator raises
            raise RequestError(f"PyTorch: {reason(self.torch, error)}") from error

    def mode(self) -> Any:
        """A context without gradients."""
        return self.torch.inference_mode() if self.inference_mode else self.torch.no_grad()

    def results(self, *tensors: Any) -> Sequence[Any]:
        """All results for tensors in the order of `arguments`."""
        result = self.call(*tensors)
        return result if isinstance(result, tuple | list) else [result]

    def result(self, results: Sequence[Any], name: str) -> Any:
        """The tensor of an output; RequestError if the callable does not give it."""
        place = self.outputs[name]
        if place >= len(results):
            raise RequestError(f"output '{name}' is number {place}; the model gives {len(results)}")
        return results[place]


def reason(torch: Any, error: BaseException, line: int = -1) -> str:
    """The line of PyTorch's message that names the failure, and the remedy where memory is short.

    CUDA's own errors have it first: they end in advice on debugging kernels.

    Args:
        line: where other errors have it.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, torch.OutOfMemoryError):
        return f"{lines[0]}; {MEMORY}"
    return lines[0 if isinstance(error, torch.AcceleratorError) else line]
