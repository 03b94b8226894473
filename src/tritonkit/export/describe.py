"""Lines for model.yaml that say what a network takes, where its file does not: of errors, and of `tritonkit new`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.export.artifact import Signature, TensorInfo

__all__ = ["example_keys", "network_comments", "other_comments"]

_SIZES = "{min: 32, max: 640, multiple_of: 32}"
_FIXED = 224


def example_keys(signature: Signature) -> list[str]:
    """One-line forms of the keys that help a network which does not run on made-up input, for a message."""
    keys = []
    tensor = next((t for t in signature.inputs if -1 in t.shape and t.dtype != "BYTES"), None)
    if tensor is not None:
        axis = _axes(tensor)[tensor.shape.index(-1)]
        named = f", {_named(tensor)}" if not all(_names(tensor)) else ""
        keys = [
            f"say which sizes it takes: network: {{free_axes: {{{_word(axis)}: {_SIZES}}}{named}}}",
            f"fix them: network: {{inputs: {{{_fixed(tensor)}}}}}",
        ]
    names = ", ".join(f"{t.name!r}: array" for t in signature.inputs)
    return [
        *keys,
        "give real input: quality: {samples: data:samples}, a function of data.py that returns"
        f" [{{{names}}}]",
    ]


def network_comments(inputs: Sequence[TensorInfo]) -> list[str]:
    """Lines of the section `network` that describe the free axes of inputs, which are given without the batch axis."""
    free = [tensor for tensor in inputs if -1 in tensor.shape and tensor.dtype != "BYTES"]
    if not free:
        return []
    axes = dict.fromkeys(
        axis for t in free for axis, size in zip(_axes(t), t.shape, strict=True) if size < 0
    )
    unnamed = [tensor for tensor in free if not all(_names(tensor))]
    lines = ["The file does not say which sizes these axes take; without them there is no warm-up:"]
    if unnamed:
        # The section is for all inputs or for none.
        lines += ["inputs:", *(f"  {_input(t, _axes(t))}" for t in inputs)]
    lines += ["free_axes:", *(f"  {_word(axis)}: {_SIZES}" for axis in axes)]
    lines += ["Or fix the sizes:", "inputs:", *(f"  {_fixed(t)}" for t in inputs)]
    return [f"# {line}" for line in lines]


def other_comments(inputs: Sequence[TensorInfo], batched: bool) -> list[str]:
    """Lines for the end of model.yaml: real input, and an example of each text, commented out."""
    lead = ["items"] if batched else []
    arrays = [f'"{t.name}": {_array(t)} [{", ".join([*lead, *_sizes(t)])}]' for t in inputs]
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
    """A name for each free axis, as model.yaml wants it, and the sizes of the others."""
    return [
        size if size >= 0 else axis or re.sub(r"\W", "_", f"{tensor.name}_{place}")
        for place, (axis, size) in enumerate(zip(tensor.axis_names, tensor.shape, strict=True))
    ]


def _sizes(tensor: TensorInfo) -> list[str]:
    return [str(axis) for axis in _axes(tensor)]


def _array(tensor: TensorInfo) -> str:
    return {"BYTES": "object (str)", "BF16": "float32"}.get(
        tensor.dtype, NUMPY_DTYPES.get(tensor.dtype, "")
    )


def _named(tensor: TensorInfo) -> str:
    return f"inputs: {{{_input(tensor, _axes(tensor))}}}"


def _fixed(tensor: TensorInfo) -> str:
    return _input(tensor, [size if size >= 0 else _FIXED for size in tensor.shape])


def _input(tensor: TensorInfo, shape: Sequence[Any]) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else _word(size) for size in shape)
    return f"{_word(tensor.name)}: {{dtype: {tensor.dtype}, shape: [{sizes}]}}"


def _word(name: str) -> str:
    """A name as YAML takes it inside of braces."""
    return name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else json.dumps(name)
