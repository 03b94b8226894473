"""Made-up values for inputs without samples: masks of ones, ids within their tables, texts, sizes that the network
accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.modelspec import FreeAxis, Spec, read_example

__all__ = ["NO_HINTS", "Hints", "axis_key", "holds_ids", "make_up", "undescribed_axes", "within"]

_MOST_ELEMENTS = 2**27  # 1 GiB while the numbers are drawn
_MOST_ROWS = 1000
"""Number of first rows of a table from which ids are drawn: every vocabulary of that kind has them."""
_DEFAULT_SIZES = (3, 7)
_LONGEST = 64
"""Largest made-up size of an axis that the spec describes: larger sizes cost time and show nothing more."""
_TEXTS = ("hello world", "a longer text, of several words", "1", "Where is the station?")

_MASK = re.compile("mask", re.IGNORECASE)
_HIDES = re.compile("pad|ignore|exclude", re.IGNORECASE)
_LENGTH = re.compile(r"(^|_)(len|lens|length|lengths)($|_)", re.IGNORECASE)
_RATE = re.compile(r"^(sr|sample_?rate|sampling_?rate)$", re.IGNORECASE)


@dataclass(frozen=True)
class Hints:
    """Facts about a network that its signature does not have."""

    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """`axis_key` -> a small and a large size at which the network runs."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Input -> rows of the table that its values index, or the number of values it accepts."""
    positive: bool = False
    """Whether the network gives numbers only for positive input, because it has a root or a logarithm."""


NO_HINTS = Hints()


def within(ranges: Mapping[str, tuple[int, int]]) -> Hints:
    """Hints of a small and a large size within the bounds of each axis, by its `axis_key`."""
    small, large = _DEFAULT_SIZES
    sizes = {axis: (min(high, max(low, small)), min(high, max(low, large))) for axis, (low, high) in ranges.items()}
    return Hints(sizes)


def axis_key(tensor: TensorInfo, position: int) -> str:
    """The name of an axis, else its position: axes of one name have one size."""
    return tensor.axis_names[position] or f"{tensor.name}.{position}"


def undescribed_axes(spec: Spec, signature: Signature) -> Iterator[str]:
    """The distinct free axes of numeric inputs that `network.free_axes` does not have."""
    seen = set(spec.model.network.free_axes)
    for tensor in signature.inputs:
        for position, size in enumerate(tensor.shape):
            key = axis_key(tensor, position)
            if size < 0 and key not in seen and tensor.dtype != "BYTES":
                seen.add(key)
                yield key


def holds_ids(tensor: TensorInfo) -> bool:
    """Whether integers are drawn for an input, because its type and name do not show its content."""
    dtype = NUMPY_DTYPES.get(tensor.dtype, "float32")
    named = (_MASK, _RATE, _LENGTH)
    return "int" in dtype and not any(pattern.search(tensor.name) for pattern in named)


def make_up(
    spec: Spec, signature: Signature, size: int, largest: bool, seed: int = 0, hints: Hints = NO_HINTS
) -> dict[str, Any]:
    """Arrays [size, ...], the same for the same seed; free axes have their large or their small size."""
    import numpy as np

    random = np.random.default_rng(seed)
    lead = (size,) if signature.batched else ()
    shapes = {
        tensor.name: lead + _sizes(spec.model.network.free_axes, tensor, largest, hints) for tensor in signature.inputs
    }
    longest = max((n for tensor in signature.inputs for n in _free_sizes(tensor, shapes)), default=1)
    return {
        tensor.name: _values(random, spec, tensor, shapes[tensor.name], longest, hints) for tensor in signature.inputs
    }


def _sizes(described: Mapping[str, FreeAxis], tensor: TensorInfo, largest: bool, hints: Hints) -> tuple[int, ...]:
    sizes = []
    for position, size in enumerate(tensor.shape):
        axis = described.get(tensor.axis_names[position])
        if size >= 0:
            sizes.append(size)
        elif axis is not None:
            sizes.append(_large(axis) if largest else axis.at_least(2))
        elif tensor.dtype == "BYTES":
            sizes.append(_DEFAULT_SIZES[largest])
        else:
            sizes.append(hints.sizes.get(axis_key(tensor, position), _DEFAULT_SIZES)[largest])
    return tuple(sizes)


def _large(axis: FreeAxis) -> int:
    """The largest allowed size up to 64, or the smallest allowed size if that is more."""
    return axis.at_most(max(axis.at_least(axis.min), _LONGEST))


def _free_sizes(tensor: TensorInfo, shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    shape = shapes[tensor.name]
    sizes = shape[len(shape) - len(tensor.shape) :]
    return [size for size, declared in zip(sizes, tensor.shape, strict=True) if declared < 0]


def _values(random: Any, spec: Spec, tensor: TensorInfo, shape: tuple[int, ...], longest: int, hints: Hints) -> Any:
    """Values for an input, chosen by its dtype and by the meaning of its name."""
    import numpy as np

    if math.prod(shape) > _MOST_ELEMENTS:
        raise BuildError(
            f"input {tensor.name}",
            found=f"a shape of {list(shape)}",
            wanted=f"at most {_MOST_ELEMENTS} elements for made-up data",
            todo="correct the shape, or give real data with quality.samples",
        )
    if tensor.dtype == "BYTES":
        return _texts(random, spec, tensor.name, shape)
    # Arrays hold BF16 as float32, here as everywhere.
    dtype = NUMPY_DTYPES.get(tensor.dtype, "float32")
    if _MASK.search(tensor.name):
        # A mask of hidden places, such as key_padding_mask, hides nothing; any other mask shows everything.
        return np.full(shape, not _HIDES.search(tensor.name), dtype)
    if _RATE.match(tensor.name):
        return np.full(shape, 16000, dtype)
    if dtype.startswith("float"):
        drawn = random.random(shape) if hints.positive else random.standard_normal(shape)
        return np.asarray(drawn, dtype)
    if _LENGTH.search(tensor.name) and dtype != "bool":
        return np.full(shape, longest, dtype)
    rows = hints.rows.get(tensor.name)
    # 0 and 1 are valid for nearly any table and class count.
    return np.asarray(random.integers(0, min(rows, _MOST_ROWS) if rows else 2, shape), dtype)


def _texts(random: Any, spec: Spec, name: str, shape: tuple[int, ...]) -> Any:
    """The spec's example, else words, as text objects, which ONNX Runtime takes for strings."""
    import numpy as np

    texts = [read_example(spec, name).decode("utf-8", "replace")] if name in spec.model.example else _TEXTS
    chosen = random.integers(0, len(texts), shape)
    return np.array([texts[place] for place in chosen.ravel()], object).reshape(shape)
