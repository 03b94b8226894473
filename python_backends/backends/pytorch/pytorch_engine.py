"""A PyTorch function as the engine of a network: TorchScript, or a compiled package."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_batch import RequestError, joined
from backend_config import ModelError, cores
from pytorch_config import NO_TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backend_batch import Arrays
    from pytorch_config import Options


def load_torch(options: Options) -> Any:
    """PyTorch, with the threads that the configuration gives an instance; ModelError without it."""
    # Workers that spin while they wait take cores from Triton and from other models. libgomp reads
    # this when torch loads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModelError(NO_TORCH) from None
    torch.set_num_threads(options.intra_op or cores())
    # It may be set only once; an instance is a process of its own, so this is the first time.
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(options.inter_op or cores())
    return torch


@dataclass(frozen=True)
class Function:
    """A callable on tensors: `inputs` and `outputs` give each name its position."""

    torch: Any
    call: Callable[..., Any]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    inference_mode: bool = True

    def begin(self) -> None:
        """Nothing to do: every run gives arrays of its own."""

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for the parts joined along the first axis; RequestError if it fails."""
        feed = joined(parts)
        names = sorted(self.inputs, key=self.inputs.__getitem__)
        mode = self.torch.inference_mode if self.inference_mode else self.torch.no_grad
        try:
            with mode():
                result = self.call(*(self.torch.from_numpy(feed[name]) for name in names))
        except Exception as error:  # RuntimeError mostly, and any class that an operator raises
            lines = str(error).strip().splitlines()
            raise RequestError(f"PyTorch: {lines[-1] if lines else type(error).__name__}") from error
        results = list(result) if isinstance(result, tuple | list) else [result]
        return {name: self._result(results, name) for name in outputs}

    def _result(self, results: list[Any], name: str) -> Any:
        place = self.outputs[name]
        if place >= len(results):
            raise RequestError(f"output '{name}' is number {place}; the model gives {len(results)}")
        return results[place].numpy()
