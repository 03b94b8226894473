"""The places of a call's tensors in one region of memory; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tritonkit.client.wire.tensors import FIXED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["ITEM_SIZES", "Layout", "Tensor", "lay_out", "output_sizes", "size_class", "sizes_of"]

Tensor: TypeAlias = tuple[str, Any]
"""A datatype and its array, as conformed to the model: object arrays for BYTES, a `DeviceArray` on a GPU."""

_ALIGNMENT = 64
"""A cache line, and enough for every vector instruction: tensors start at multiples of it."""

_SMALLEST_CLASS = 64 * 1024

ITEM_SIZES = {name: dtype.itemsize for name, dtype in FIXED.items()} | {"BF16": 2}
"""Bytes of one element; those of BYTES differ."""


class Layout(NamedTuple):
    """The places of a call's tensors by name, as (offset, bytes), and the bytes they take together."""

    inputs: dict[str, tuple[int, int]]
    outputs: dict[str, tuple[int, int]]
    size: int


def sizes_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """The bytes of each input on the wire."""
    return {
        name: sum(map(len, array.flat)) + 4 * array.size if datatype == "BYTES" else ITEM_SIZES[datatype] * array.size
        for name, (datatype, array) in inputs.items()
    }


def lay_out(inputs: Mapping[str, int], outputs: Mapping[str, int]) -> Layout:
    """Give tensors of these sizes in bytes their places, one after the other.

    Empty tensors get none, because Triton refuses a place without bytes. They are sent as usual.
    """
    layout, end = Layout({}, {}, 0), 0
    for sizes, places in ((inputs, layout.inputs), (outputs, layout.outputs)):
        for name, size in sizes.items():
            if size:
                places[name] = (end, size)
                end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return layout._replace(size=end)


def output_sizes(signature: ModelSignature, names: Iterable[str], batch: int | None) -> dict[str, int]:
    """The bytes of the named outputs whose size is known before a call with `batch` items.

    Outputs of open shape, of BYTES, and with a batch axis if `batch` is None are omitted.
    """
    sizes = {}
    for name in names:
        spec = signature.outputs[name]
        item = ITEM_SIZES.get(spec.datatype)
        items = batch if spec.batched else 1
        if item is not None and items is not None and -1 not in spec.dims:
            sizes[name] = items * math.prod(spec.dims) * item
    return sizes


def size_class(size: int) -> int:
    """The size of the regions that serve `size` bytes: at most a quarter more, 64 KiB at least."""
    if size <= _SMALLEST_CLASS:
        return _SMALLEST_CLASS
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step
