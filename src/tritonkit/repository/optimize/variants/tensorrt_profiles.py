"""The input sizes for which a TensorRT plan is built, from the spec's batching and free axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.modelspec import Serving, Spec

__all__ = ["Profile", "Range", "largest_batch", "opt_batches", "profiles"]

_DEFAULT_MAX_BATCH = 64  # render's for a spec without max_batch_size; a test holds them equal


@dataclass(frozen=True)
class Range:
    """Shapes of one input, batch axis included: the smallest, the one to optimize for, and the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


Profile = Mapping[str, Range]
"""Input name -> the shapes it may have."""


def profiles(spec: Spec, signature: Signature, largest_size: int | None = None) -> tuple[Profile, ...]:
    """One profile per preferred batch size, in rising order, each for 1 to max_batch_size items.

    Without preferred sizes the plan is optimized for the largest batch. Triton takes the
    profile whose `opt` is nearest to a request (tensorrt_backend, GetMostOptimizedProfile). Free axes
    go from their min to their max, and are optimized for the middle of `warm`, else for max. Empty for a
    network whose inputs have fixed sizes. BuildError for a free axis whose sizes the spec does not state.

    Args:
        largest_size: the max_batch_size, where a configuration has it already.
    """
    serving = spec.model.serving
    largest = largest_batch(serving) if largest_size is None else largest_size
    largest = 1 if signature.single else largest
    preferred = () if signature.single else opt_batches(serving)
    batches = (preferred or (largest,)) if signature.batched or signature.single else (0,)
    if not (signature.batched or signature.single) and all(-1 not in tensor.shape for tensor in signature.inputs):
        return ()
    return tuple(
        {tensor.name: _range(spec, signature, tensor, (1, opt, largest)) for tensor in signature.inputs}
        for opt in batches
    )


def largest_batch(serving: Serving) -> int:
    """The configuration's max_batch_size: the given one, else 64 or the largest preferred size."""
    given = serving.max_batch_size
    return max((_DEFAULT_MAX_BATCH, *opt_batches(serving))) if given is None else given


def opt_batches(serving: Serving) -> tuple[int, ...]:
    """The distinct preferred batch sizes in rising order."""
    oldest = serving.sequence_batching.oldest if serving.sequence_batching else None
    batching = serving.dynamic_batching or oldest
    return tuple(sorted(set(batching.preferred_batch_size))) if batching else ()


def _range(spec: Spec, signature: Signature, tensor: TensorInfo, batch: tuple[int, int, int]) -> Range:
    sizes = [_axis(spec, tensor, position) for position in range(len(tensor.shape))]
    if signature.batched or signature.single:
        sizes.insert(0, batch)
    smallest, best, most = zip(*sizes, strict=True) if sizes else ((), (), ())
    return Range(smallest, best, most)


def _axis(spec: Spec, tensor: TensorInfo, position: int) -> tuple[int, int, int]:
    size = tensor.shape[position]
    if size >= 0:
        return size, size, size
    name = tensor.axes[position] if tensor.axes else ""
    axis = spec.model.network.free_axes.get(name)
    if axis is None:
        raise BuildError(
            f"{spec.file} network.free_axes",
            found=f"the range is unknown for axis {position} of input {tensor.name} ({name or 'unnamed'})",
            wanted="the smallest and the largest size of each free axis: a plan is built for them",
            todo=f"name it in network.inputs.{tensor.name} and give its min and max under free_axes",
        )
    warm = sorted(axis.warm)
    return axis.min, warm[len(warm) // 2] if warm else axis.max, axis.max
