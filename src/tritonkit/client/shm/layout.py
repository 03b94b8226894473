"""Where the tensors of a call lie in one region of memory; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.wire.tensors import FIXED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tritonkit.wire.signature import ModelSignature

__all__ = ["ITEM_SIZES", "Layout", "Tensor", "lay_out", "output_sizes", "size_class", "sizes_of"]

Tensor: TypeAlias = "tuple[str, NDArray[Any]]"
"""A datatype and its array, as conformed to the model: object arrays for BYTES."""

_ALIGNMENT = 64
"""A cache line, and enough for every vector instruction: tensors start at multiples of it."""

_SMALLEST_CLASS = 64 * 1024

ITEM_SIZES = {name: dtype.itemsize for name, dtype in FIXED.items()} | {"BF16": 2}
"""Bytes of one element; those of BYTES differ."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of a call's tensors by name, as (offset, bytes), and the bytes they take together."""

    inputs: Mapping[str, tuple[int, int]]
    outputs: Mapping[str, tuple[int, int]]
    size: int


def sizes_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """The bytes of each input, as it travels."""
    return {name: _size(datatype, array) for name, (datatype, array) in inputs.items()}


def lay_out(inputs: Mapping[str, int], outputs: Mapping[str, int]) -> Layout:
    """Give every tensor a place, one after the other.

    Empty tensors get none: Triton refuses a place without bytes. They are sent as usual.

    Args:
        inputs: bytes by name, as `sizes_of` gives them.
        outputs: bytes by name, as `output_sizes` gives them.
    """
    given, end = _places(inputs.items(), 0)
    taken, end = _places(outputs.items(), end)
    return Layout(given, taken, end)


def output_sizes(
    signature: ModelSignature, names: Iterable[str], batch: int | None
) -> dict[str, int]:
    """The bytes of those outputs whose size is known before the call.

    Args:
        signature: the model's.
        names: the outputs that will be asked for.
        batch: items in the call; None for a model without a batch axis.

    Returns:
        Bytes by name; without outputs of open shape, of BYTES, or with a batch axis of unknown length.
    """
    sizes = {}
    for name in names:
        spec = signature.outputs[name]
        item = ITEM_SIZES.get(spec.datatype)
        if item is None or -1 in spec.dims or (spec.batched and batch is None):
            continue
        items = batch if spec.batched and batch is not None else 1
        sizes[name] = items * math.prod(spec.dims) * item
    return sizes


def size_class(size: int) -> int:
    """The size of the regions that serve `size` bytes: at most a quarter more, 64 KiB at least."""
    if size <= _SMALLEST_CLASS:
        return _SMALLEST_CLASS
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


def _size(datatype: str, array: NDArray[Any]) -> int:
    if datatype == "BYTES":
        return sum(map(len, array.flat)) + 4 * array.size
    return ITEM_SIZES[datatype] * array.size


def _places(sizes: Iterable[tuple[str, int]], start: int) -> tuple[dict[str, tuple[int, int]], int]:
    places = {}
    for name, size in sizes:
        if size:
            places[name] = (start, size)
            start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return places, start
