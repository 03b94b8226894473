"""The needs of a network's start: memory and time for its largest item, and input that warms it up.

One item is measured in the process that builds, by the engine that serves. Its memory is the largest growth of that
process, as the kernel reports it; without that report, the memory is unknown.
"""

from __future__ import annotations

import base64
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import TritonkitError
from tritonkit.repository.export.artifact import GivenInput, Signature, StartNeeds
from tritonkit.repository.export.samples import Batch, first_items
from tritonkit.repository.modelspec import FreeAxis, Spec
from tritonkit.repository.optimize.runner import Runs

__all__ = ["measure_start", "warm_sizes"]

_MOST_ELEMENTS = 1 << 27
"""Most elements of an input that is run: 0.5 GiB of FP32."""

_LARGEST_SAMPLE = 4 << 20
"""Most bytes of a sample that is kept for the warm-up."""


def warm_sizes(free_axes: Mapping[str, FreeAxis]) -> list[dict[str, int]]:
    """The sizes of free axes at which a network is warmed up: the first size of every axis, the second of every axis,
    and so on. A short list repeats its last size."""
    sizes = {
        name: axis.warm or (axis.at_least(axis.min), axis.at_most(axis.max)) for name, axis in sorted(free_axes.items())
    }
    longest = max((len(values) for values in sizes.values()), default=1)
    return [{name: values[min(turn, len(values) - 1)] for name, values in sizes.items()} for turn in range(longest)]


def measure_start(spec: Spec, signature: Signature, samples: Sequence[Batch], runner: Runs) -> StartNeeds:
    """Measure the needs of a network that was just opened: one item of each warm size, the largest first.

    The warm-up sends zeros. If the network refuses them, or none can be made, it sends one of the samples.
    """
    peak = _Peak()
    try:
        zeros = [_zeros(signature, sizes) for sizes in reversed(warm_sizes(spec.model.network.free_axes))]
        for batch in zeros:
            peak.run(runner, batch)
    except (TritonkitError, MemoryError, _NoZeros) as error:
        item = _smallest(samples, batched=signature.batched)
        with contextlib.suppress(TritonkitError):  # the comparison that follows reports why
            peak.run(runner, item)
        refused = not isinstance(error, _NoZeros)
        return StartNeeds(peak.memory_bytes, peak.processor_s, refused, _kept(signature, item))
    return StartNeeds(peak.memory_bytes, peak.processor_s)


class _NoZeros(Exception):
    """Zeros cannot be made: an input holds text, is too large, or has a size that the spec does not describe."""


class _Peak:
    """The largest memory and processor time of any single run."""

    def __init__(self) -> None:
        self.memory_bytes, self.processor_s = 0, 0.0

    def run(self, runner: Runs, batch: Batch) -> None:
        before = _reset()
        began = time.process_time()
        runner.run(batch)
        self.processor_s = max(self.processor_s, time.process_time() - began)
        if before:
            self.memory_bytes = max(self.memory_bytes, _status("VmHWM") - before)


def _reset() -> int:
    """Begin a new peak of this process's memory (proc(5), clear_refs); return the memory now, 0 if the kernel does not
    report it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except (OSError, ValueError, LookupError):
        return 0


def _status(field: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    raise LookupError(field)


def _zeros(signature: Signature, sizes: Mapping[str, int]) -> Batch:
    """One item of zeros; _NoZeros if it cannot be made."""
    import numpy as np

    batch: dict[str, Any] = {}
    for tensor in signature.inputs:
        free = [name for size, name in zip(tensor.shape, tensor.axis_names, strict=True) if size < 0]
        if tensor.dtype not in NUMPY_DTYPES or not set(free) <= set(sizes):
            raise _NoZeros(tensor.name)
        shape = [sizes[name] if size < 0 else size for size, name in zip(tensor.shape, tensor.axis_names, strict=True)]
        if math.prod(shape) > _MOST_ELEMENTS:
            raise _NoZeros(tensor.name)
        lead = [1] if signature.batched else []
        batch[tensor.name] = np.zeros([*lead, *shape], NUMPY_DTYPES[tensor.dtype])
    return batch


def _smallest(samples: Sequence[Batch], *, batched: bool) -> Batch:
    """The first item of the batch whose items are smallest."""
    items = [first_items([batch], 1, batched)[0] for batch in samples]
    return min(items, key=lambda item: sum(array.nbytes for array in item.values()))


def _kept(signature: Signature, item: Batch) -> dict[str, GivenInput]:
    """An item as the warm-up sends it, without the batch axis; empty if it is too large or text."""
    if any(tensor.dtype not in NUMPY_DTYPES for tensor in signature.inputs):
        return {}
    if sum(array.nbytes for array in item.values()) > _LARGEST_SAMPLE:
        return {}
    return {
        name: GivenInput(
            tuple(array.shape[1:] if signature.batched else array.shape) or (1,),
            base64.b64encode(array.tobytes()).decode(),
        )
        for name, array in item.items()
    }
