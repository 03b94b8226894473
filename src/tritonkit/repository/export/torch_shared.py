"""Errors for modules whose inputs or outputs have no batch axis: tables that all items share, losses, single items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tritonkit.errors import BuildError

__all__ = ["name_shared_input", "small_outputs"]


def name_shared_input(
    error: BuildError, run: Callable[..., Any], inputs: Sequence[str], tensors: Sequence[Any]
) -> bool:
    """Test whether the module runs if one of its tensors loses its first axis; the error then says so."""
    for place, name in enumerate(inputs if len(inputs) > 1 else ()):
        if _runs(run, [t[0] if at == place else t for at, t in enumerate(tensors)]):
            shape = list(tensors[place].shape)
            seen = f"it does not run with {name} of shape {shape}, and runs with {shape[1:]}"
            error.found = f"{seen}: all items share that input"
            error.wanted = "inputs with the batch axis in front"
            error.todo = (
                f"keep {name} in the module, if it is the same for every request: register_buffer({name!r}, ...);"
                f" or take {name}[0] in a wrapper, if callers send it, and set serving.max_batch_size: 0"
            )
            error.details = ""
            return True
    return False


def _runs(run: Callable[..., Any], tensors: Sequence[Any]) -> bool:
    try:
        run(*tensors)
    except Exception:
        return False
    return True


def small_outputs(outputs_of: Callable[[int], Mapping[str, Any]]) -> tuple[Mapping[str, Any], str]:
    """Outputs for 2 items; or, if these cannot share a batch, outputs for one item and a sentence about that."""
    try:
        small = outputs_of(2)
        unbatched = _without_batch_axis(small, outputs_of(3), 2)
    except BuildError as error:
        try:
            return outputs_of(1), "It runs with one item, and not with 2 or 3 together"
        except BuildError:
            raise error from None
    return (outputs_of(1), unbatched) if unbatched else (small, "")


def _without_batch_axis(outputs: Mapping[str, Any], more: Mapping[str, Any], count: int) -> str:
    """A sentence about the first output without a batch axis: `outputs` belong to `count` items, and `more` to one item
    more."""
    for name, tensor in outputs.items():
        other = more.get(name, tensor)
        if (tensor.shape[:1], other.shape[:1]) != ((count,), (count + 1,)):
            return f"{name} has the shape {list(tensor.shape)} for {count} items, without a batch axis in front"
    return ""
