"""Lines for model.yaml that describe inputs which the file leaves open, for errors and `tritonkit new`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.repository.export.artifact import Signature, TensorInfo

__all__ = ["example_keys", "network_comments", "other_comments"]

_SIZES = "{min: 32, max: 640, multiple_of: 32}"
_LENGTHS = "{min: 1, max: 256}"
"""Suggested bounds for rows of integers, which are more often tokens than images."""
_FIXED, _FIXED_LENGTH = 224, 64


def example_keys(signature: Signature) -> list[str]:
    """One-line forms of the keys that help a network which does not run on made-up input, for a message."""
    keys = []
    tensor = next((t for t in signature.inputs if -1 in t.shape and t.dtype != "BYTES"), None)
    if tensor is not None:
        axis = _axes(tensor)[tensor.shape.index(-1)]
        named = f", {_named(tensor)}" if not all(_names(tensor)) else ""
        keys = [
            f"say which sizes it takes: network: {{free_axes: {{{_word(axis)}: {_allowed(tensor)}}}{named}}}",
            f"fix them: network: {{inputs: {{{_fixed(tensor)}}}}}",
        ]
    names = ", ".join(f"{t.name!r}: array" for t in signature.inputs)
    return [
        *keys,
        f"give real input: quality: {{samples: data:samples}}, a function of data.py that returns [{{{names}}}]",
    ]


def network_comments(inputs: Sequence[TensorInfo]) -> list[str]:
    """Lines of the section `network` that describe the free axes of inputs, which are given without the batch axis."""
    free = [tensor for tensor in inputs if -1 in tensor.shape and tensor.dtype != "BYTES"]
    if not free:
        return []
    axes = {
        axis: _allowed(t)
        for t in sorted(free, key=_is_tokens)
        for axis, size in zip(_axes(t), t.shape, strict=True)
        if size < 0
    }
    unnamed = [tensor for tensor in free if not all(_names(tensor))]
    lines = ["The file does not say which sizes these axes take; without them there is no warm-up:"]
    if unnamed:
        # The section must have all inputs or none.
        lines += ["inputs:", *(f"  {_input(t, _axes(t))}" for t in inputs)]
    lines += ["free_axes:", *(f"  {_word(axis)}: {allowed}" for axis, allowed in axes.items())]
    lines += ["Or fix the sizes:", "inputs:", *(f"  {_fixed(t, axes)}" for t in inputs)]
    return [f"# {line}" for line in lines]


def other_comments(inputs: Sequence[TensorInfo], batched: bool) -> list[str]:
    """Commented-out lines for the end of model.yaml: real input, and an example of each text."""
    lead = ["items"] if batched else []
    arrays = [f"{json.dumps(t.name)}: {_array(t)} [{', '.join([*lead, *_sizes(t)])}]" for t in inputs]
    lines = [
        "Real input, on which a build measures; without it, input is made up. data.py in this folder has",
        f"def samples(), which returns batches: [{{{', '.join(arrays)}}}, ...]",
        "quality: {samples: data:samples}",
    ]
    if texts := [t.name for t in inputs if t.dtype == "BYTES"]:
        lines += ["example:", *(f"  {_word(name)}: {{text: one real text}}" for name in texts)]
    return [f"# {line}" for line in lines]


def _names(tensor: TensorInfo) -> list[str]:
    """Names of the free axes, "" for those without one."""
    return [a for a, size in zip(tensor.axis_names, tensor.shape, strict=True) if size < 0]


def _axes(tensor: TensorInfo) -> list[Any]:
    """The shape for model.yaml: a name for each free axis, and the sizes of the other axes."""
    return [
        size if size >= 0 else axis or re.sub(r"\W", "_", f"{tensor.name}_{place}")
        for place, (axis, size) in enumerate(zip(tensor.axis_names, tensor.shape, strict=True))
    ]


def _sizes(tensor: TensorInfo) -> list[str]:
    return [str(axis) if isinstance(axis, int) else _word(axis) for axis in _axes(tensor)]


def _array(tensor: TensorInfo) -> str:
    return {"BYTES": "object (str)", "BF16": "float32"}.get(tensor.dtype, NUMPY_DTYPES.get(tensor.dtype, ""))


def _named(tensor: TensorInfo) -> str:
    return f"inputs: {{{_input(tensor, _axes(tensor))}}}"


def _is_tokens(tensor: TensorInfo) -> bool:
    return "INT" in tensor.dtype and len(tensor.shape) < 3


def _allowed(tensor: TensorInfo) -> str:
    return _LENGTHS if _is_tokens(tensor) else _SIZES


def _fixed(tensor: TensorInfo, allowed: Mapping[Any, str] | None = None) -> str:
    """The input with one size for each free axis; `allowed` are the sizes that axes of all inputs may have."""
    own = _allowed(tensor)
    kinds = [(allowed or {}).get(axis, own) for axis in _axes(tensor)]
    sizes = [_FIXED_LENGTH if kind == _LENGTHS else _FIXED for kind in kinds]
    return _input(tensor, [n if n >= 0 else s for n, s in zip(tensor.shape, sizes, strict=True)])


def _input(tensor: TensorInfo, shape: Sequence[Any]) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else _word(size) for size in shape)
    return f"{_word(tensor.name)}: {{dtype: {tensor.dtype}, shape: [{sizes}]}}"


def _word(name: str) -> str:
    """A name in the form that YAML accepts inside of braces."""
    return name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else json.dumps(name)
