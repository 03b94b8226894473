"""The requests that Triton runs before it calls a model ready: made up, or listed by the spec."""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonkit.datatypes import DATATYPES, DataType
from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import GivenInput, TensorInfo
from tritonkit.repository.modelspec import FreeAxis, Spec, resolve_file
from tritonkit.repository.modelspec.sequences import ControlInput
from tritonkit.repository.modelspec.serving import WarmupInput, WarmupSample
from tritonkit.repository.optimize.start import warm_sizes

_FORMATS = {"FP32": "f", "INT32": "i", "BOOL": "?", "UINT64": "Q", "INT64": "q", "UINT32": "I"}
"""Format of a control input's value in `struct`, by its type."""

__all__ = ["Warmup", "automatic", "from_sample", "listed", "prompted", "serialize"]


@dataclass(frozen=True)
class Warmup:
    """Samples, the files they read from `<model>/warmup/`, and the reason if there are none."""

    samples: tuple[WarmupSample, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    note: str = ""


def serialize(item: bytes, count: int = 1) -> bytes:
    """BYTES elements as Triton carries them: each with its length before it, 4 bytes little-endian."""
    return (struct.pack("<I", len(item)) + item) * count


def automatic(
    inputs: Sequence[TensorInfo],
    batch_sizes: Sequence[int],
    free_axes: Mapping[str, FreeAxis],
    examples: Mapping[str, bytes],
    controls: Mapping[str, ControlInput],
) -> Warmup:
    """One sample per batch size and warm size of the free axes, with zeros and the spec's examples.

    Zeros replace Triton's random data, which holds NaN and, for ids, values out of range: a failed warm-up keeps a
    model from loading. Several free axes move together, so that the number of samples grows with the sizes and not with
    their product. An optional input is left out unless it has an example. Control inputs say that a sequence of one
    request begins and ends.
    """
    needed = [t for t in inputs if not t.optional or t.name in examples]
    if missing := [t.name for t in needed if t.dtype == "BYTES" and t.name not in examples]:
        return Warmup(note=f"no warm-up: there is no example for the BYTES input {missing[0]}")
    if unknown := [t for t in needed if any(_is_unknown(t, i, free_axes) for i in range(len(t.shape)))]:
        return Warmup(
            note=f"no warm-up: input {unknown[0].name} has an axis whose sizes are not under network.free_axes"
        )
    named = {axis for t in needed for axis in t.axes if axis in free_axes}
    files: dict[str, bytes] = {}
    samples = [
        WarmupSample(
            name="-".join([f"batch-{batch}", *(f"{axis}-{size}" for axis, size in at.items())]),
            batch_size=batch,
            inputs={t.name: _data(t, at, examples, files) for t in needed}
            | {name: _control(name, control, files) for name, control in controls.items()},
        )
        for batch in batch_sizes
        for at in warm_sizes({axis: free_axes[axis] for axis in named})
    ]
    return Warmup(tuple(samples), files)


def from_sample(
    inputs: Sequence[TensorInfo],
    batch_sizes: Sequence[int],
    item: Mapping[str, GivenInput],
    controls: Mapping[str, ControlInput],
) -> Warmup:
    """One sample per batch size from the build's own samples, for a network that refuses zeros or whose sizes are not
    known."""
    files: dict[str, bytes] = {}
    tensors = {
        t.name: WarmupInput(
            dtype=t.dtype, shape=item[t.name].shape, file=_store(files, t.name, b64decode(item[t.name].data))
        )
        for t in inputs
        if t.name in item
    }
    tensors |= {name: _control(name, control, files) for name, control in controls.items()}
    samples = tuple(WarmupSample(name=f"batch-{batch}", batch_size=batch, inputs=tensors) for batch in batch_sizes)
    return Warmup(samples, files)


def prompted(text: bytes) -> Warmup:
    """One token of a language model's answer, because Triton's warm-up accepts only one response of a stream."""
    files: dict[str, bytes] = {}
    content: dict[str, tuple[DataType, bytes]] = {
        "text": ("BYTES", serialize(text)),
        "max_tokens": ("INT32", struct.pack("<i", 1)),
    }
    inputs = {
        name: WarmupInput(dtype=dtype, shape=(1,), file=_store(files, name, data))
        for name, (dtype, data) in content.items()
    }
    return Warmup((WarmupSample(name="prompt", inputs=inputs),), files)


def _is_unknown(info: TensorInfo, position: int, free_axes: Mapping[str, FreeAxis]) -> bool:
    """Whether a numeric input has a free size without bounds. For BYTES, any free number is warmed up with one
    element."""
    if info.shape[position] != -1 or info.dtype == "BYTES":
        return False
    return not info.axes or info.axes[position] not in free_axes


def _data(
    info: TensorInfo, at: Mapping[str, int], examples: Mapping[str, bytes], files: dict[str, bytes]
) -> WarmupInput:
    dims = tuple(
        size if size != -1 else at.get(axis, 1) for size, axis in zip(info.shape, info.axis_names, strict=True)
    ) or (1,)
    if info.dtype != "BYTES":
        return _zeros(info.dtype, dims)
    content = serialize(examples[info.name], math.prod(dims))
    return WarmupInput(dtype=info.dtype, shape=dims, file=_store(files, info.name, content))


def _zeros(dtype: DataType, shape: tuple[int, ...]) -> WarmupInput:
    return WarmupInput(dtype=dtype, shape=shape, data="zero")


def _control(name: str, control: ControlInput, files: dict[str, bytes]) -> WarmupInput:
    """A control input for a request that is a whole sequence, which starts, ends and is ready."""
    value = 1.0 if control.kind == "corrid" else control.false_true[1]
    if control.dtype == "BYTES":
        content = serialize(b"1")
    else:
        number = value if control.dtype == "FP32" else int(value)
        content = struct.pack(f"<{_FORMATS[control.dtype]}", number)
    return WarmupInput(dtype=control.dtype, shape=(1,), file=_store(files, name, content))


def listed(
    listing: Sequence[WarmupSample],
    inputs: Sequence[TensorInfo],
    controls: Mapping[str, ControlInput],
    spec: Spec,
    section: str,
) -> Warmup:
    """The samples that `section` of the spec lists, checked against the model's inputs.

    A RenderError names the first sample that Triton would refuse.
    """
    files: dict[str, bytes] = {}
    tensors = {t.name: (t.dtype, t.shape or (1,)) for t in inputs}
    tensors |= {name: (control.dtype, (1,)) for name, control in controls.items()}
    required = set(tensors) - {t.name for t in inputs if t.optional}
    samples = []
    for sample in listing:
        place = f"{section}.{sample.name}.inputs"
        if not required <= set(sample.inputs) <= set(tensors):
            raise RenderError(f"{spec.file} {place}", found=f"{sorted(sample.inputs)}", wanted=f"{sorted(tensors)}")
        data = {
            name: _listed_data(name, value, tensors[name], files, spec, f"{place}.{name}")
            for name, value in sample.inputs.items()
        }
        samples.append(sample.model_copy(update={"inputs": data}))
    return Warmup(tuple(samples), files)


def _listed_data(
    name: str,
    value: WarmupInput,
    tensor: tuple[DataType, tuple[int, ...]],
    files: dict[str, bytes],
    spec: Spec,
    place: str,
) -> WarmupInput:
    dtype, shape = tensor
    fits = len(value.shape) == len(shape) and all(
        size == -1 or size == got for size, got in zip(shape, value.shape, strict=True)
    )
    if value.dtype != dtype or not fits:
        raise RenderError(
            f"{spec.file} {place}", found=f"{value.dtype} {list(value.shape)}", wanted=f"{dtype} {list(shape)}"
        )
    if value.file is None:
        return value
    content = resolve_file(value.file, spec, f"{place}.file").read_bytes()
    count = math.prod(value.shape)
    element = DATATYPES[dtype].size
    if element is None:
        content = serialize(content, count)
    elif len(content) != count * element:
        raise RenderError(
            f"{spec.file} {place}.file",
            found=f"{value.file} has {len(content)} bytes",
            wanted=f"{count * element}: {dtype} {list(value.shape)}, in C order",
        )
    return value.model_copy(update={"file": _store(files, name, content)})


def _store(files: dict[str, bytes], name: str, content: bytes) -> str:
    """A file name for this content: new content gets a new name, the same content keeps its own."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    number, candidate = 1, clean
    while files.get(candidate, content) != content:
        number += 1
        candidate = f"{clean}_{number}"
    files[candidate] = content
    return candidate
