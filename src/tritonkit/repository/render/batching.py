"""Batch sizes, and whether the server forms batches, where the spec leaves them open."""

from __future__ import annotations

import json
from typing import Any

from tritonkit.client.wire.signature import INDEPENDENT_ITEMS
from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact, Independence, StartNeeds
from tritonkit.repository.export.batching import advice, hold_to_demand, reason
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.serving import DynamicBatching
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.render.parts import Part
from tritonkit.repository.render.values import Target

__all__ = [
    "DEFAULT_MAX_BATCH_SIZE",
    "PADDED_MAX_BATCH_SIZE",
    "affordable",
    "independence_note",
    "independence_parameter",
    "pad_parameter",
    "plan_dynamic_batching",
    "plan_lengths",
    "plan_max_batch_size",
    "plan_padding",
    "warm_batches",
    "warm_up_note",
]

DEFAULT_MAX_BATCH_SIZE = 64
PADDED_MAX_BATCH_SIZE = 8
"""The default for the openvino backend, which in NVIDIA's image pads every batch to the largest."""


WARM_BYTES = 1 << 30
"""Memory that warming up one instance may take."""
WARM_S = 60.0
"""Core seconds that warming up the largest batch may take."""


_UNPADDED = ("BYTES", "FP16", "BF16")


def plan_max_batch_size(spec: Spec, artifact: Artifact) -> int:
    """The network's largest batch: the given one, else 64 (8 for OpenVINO), its largest preferred size or the windows
    of a document, and less where 64 cannot be warmed up; 0 without a batch axis."""
    serving, batched = spec.model.serving, artifact.signature.batched
    size = serving.max_batch_size
    verdict = artifact.independence
    if size is None and batched and verdict is not None and not verdict.holds:
        return 1  # a variant that couples items where the network does not
    if size is None:
        padded = "model.xml" in artifact.files
        default = PADDED_MAX_BATCH_SIZE if padded else DEFAULT_MAX_BATCH_SIZE
        windows = max((step.most_windows for step in spec.steps if step), default=0)
        least = min(windows, DEFAULT_MAX_BATCH_SIZE)
        return max(min(default, affordable(artifact)), least, *_preferred(spec)) if batched else 0
    hold_to_demand(spec, artifact.independence, f"variant {artifact.variant}")
    if (size > 0) != batched:
        raise RenderError(
            f"{spec.file} serving.max_batch_size",
            found=f"{size}, and the network has {'a' if batched else 'no'} batch axis",
            wanted="a size above 0" if batched else "0",
            todo="change it" if batched else "change it, or export with a free first axis",
        )
    return size


def affordable(artifact: Artifact) -> int:
    """The largest power of two for which the measured memory and time of a warm-up stay within bounds."""
    start, size = artifact.start, 1
    if start is None:
        return DEFAULT_MAX_BATCH_SIZE
    while size < DEFAULT_MAX_BATCH_SIZE and not _is_too_much(start, 2 * size):
        size *= 2
    return size


def _is_too_much(start: StartNeeds, size: int) -> bool:
    return size * start.memory_bytes > WARM_BYTES or size * start.processor_s > WARM_S


def warm_up_note(spec: Spec, artifact: Artifact, max_batch_size: int) -> str:
    """A note on a largest batch below the default, or on the cost of the one that the spec chose."""
    start = artifact.start
    if start is None or max_batch_size < 1:
        return ""
    free = ", ".join(
        f"{name} {axis.warm[-1] if axis.warm else axis.at_most(axis.max)}"
        for name, axis in spec.model.network.free_axes.items()
    )
    item = f"one item{' of ' + free if free else ''} takes {_amount(start, 1)}"
    if spec.model.serving.max_batch_size is None and affordable(artifact) < DEFAULT_MAX_BATCH_SIZE:
        return (
            f"max_batch_size is {max_batch_size}: {item}, a batch of {DEFAULT_MAX_BATCH_SIZE} about"
            f" {_amount(start, DEFAULT_MAX_BATCH_SIZE)}; serving.max_batch_size and free_axes have their own values"
        )
    if _is_too_much(start, max_batch_size) and max_batch_size > 1:
        return (
            f"warning: warming up batches of {max_batch_size} takes about {_amount(start, max_batch_size)} ({item});"
            " a smaller max_batch_size, or smaller warm sizes of free_axes, take less"
        )
    return ""


def _amount(start: StartNeeds, size: int) -> str:
    time = f"{size * start.processor_s:.2g} s of a core"
    return f"{format_bytes(size * start.memory_bytes)} and {time}" if start.memory_bytes else time


def independence_note(spec: Spec, artifact: Artifact) -> str:
    """The reason why the network is served without a batch axis, or why its requests share no batch."""
    verdict = artifact.independence
    if verdict is None or verdict.holds or spec.model.serving.max_batch_size == 0:
        return ""
    if artifact.signature.batched:
        return f"requests share no batch: {reason(verdict)} ({artifact.variant}): {verdict.seen}"
    items = ", one item to a request" if artifact.signature.single else ""
    return f"max_batch_size is 0{items}: {reason(verdict)}: {verdict.seen}. To batch: {advice(verdict, refused=False)}"


def independence_parameter(
    verdict: Independence | None, max_batch_size: int, *, shipped: bool, declared: bool
) -> dict[str, str]:
    """The parameter that tells the client whether requests may share a batch: `proven` or `declared`, else none.

    `verdict` is None where nothing was tried; the project's own tests hold the shipped steps to it.
    """
    if max_batch_size < 2:
        return {}
    tried = verdict.state if verdict else ""
    state = "declared" if declared else "proven" if shipped else tried
    return {INDEPENDENT_ITEMS: state} if state in ("proven", "declared") else {}


def _preferred(spec: Spec) -> tuple[int, ...]:
    serving = spec.model.serving
    oldest = serving.sequence_batching.oldest if serving.sequence_batching else None
    batching = serving.dynamic_batching or oldest
    return (0, *(batching.preferred_batch_size if batching else ()))


def plan_dynamic_batching(part: Part, max_batch_size: int, where: str) -> DynamicBatching | None:
    """Batching on the server: on for a model that batches, unless the spec turns it off, keeps sequences or is
    decoupled."""
    serving = part.serving
    batching = serving.dynamic_batching
    if batching is None:
        plain = serving.sequence_batching is None and not serving.decoupled
        return DynamicBatching() if plain and max_batch_size > 0 else None
    if batching is False:
        return None
    if max(batching.preferred_batch_size, default=1) > max_batch_size:
        raise RenderError(
            f"{where}.dynamic_batching",
            found=f"preferred_batch_size {list(batching.preferred_batch_size)}, and max_batch_size is {max_batch_size}",
            wanted="preferred sizes of at most max_batch_size"
            if max_batch_size
            else "no dynamic_batching for a model without a batch axis",
        )
    return batching


def plan_padding(part: Part, max_batch_size: int) -> dict[str, str]:
    """Permission to pad, without which the openvino backend fails every batch below the largest (its README)."""
    if part.backend != "openvino" or max_batch_size < 2:
        return {}
    return {"ENABLE_BATCH_PADDING": "YES"}


def plan_lengths(part: Part, spec: Spec, max_batch_size: int, target: Target) -> dict[str, dict[str, Any]]:
    """The axis of each tensor whose size a request chooses, and for inputs the value that fills it up in a batch.

    Empty without `pad` in the spec, for steps, and for the nvidia target, which uses NVIDIA's backends.

    Raises:
        RenderError: `pad` fits no input.
    """
    padding = {axis: free.pad for axis, free in spec.model.network.free_axes.items() if free.pad}
    if part.is_step or not padding or max_batch_size < 2 or target == "nvidia":
        return {}
    ((axis, values),) = padding.items()
    places = {
        port.info.name: port.info.axes.index(axis) for port in (*part.inputs, *part.outputs) if axis in port.info.axes
    }
    inputs = {p.info.name: p.info.dtype for p in part.inputs if p.info.name in places}
    where = f"{spec.file} network.free_axes.{axis}.pad"
    if set(inputs) != set(values):
        raise RenderError(
            where,
            found=f"values for {', '.join(sorted(values))}",
            wanted=f"one for each input with that axis: {', '.join(sorted(inputs)) or 'there is none'}",
        )
    for name, dtype in inputs.items():
        if dtype in _UNPADDED or (dtype not in ("FP32", "FP64") and values[name] % 1):
            raise RenderError(
                where,
                found=f"{values[name]} for {name}, which is {dtype}",
                wanted="a value of its type, and a type that can be padded, so not " + ", ".join(_UNPADDED),
            )
    return {
        name: {"axis": place, **({"value": values[name]} if name in values else {})} for name, place in places.items()
    }


def pad_parameter(lengths: dict[str, dict[str, Any]], part: Part, spec: Spec, target: Target) -> dict[str, str]:
    """The parameters from which the backends read the lengths, and the most positions of a run
    (docs/native-backends.md).

    Raises:
        RenderError: a bound is given for a part that does not pad.
    """
    most = part.serving.max_batch_tokens
    if most is not None and not lengths and target != "nvidia":
        raise RenderError(
            f"{spec.file} {part.section}.max_batch_tokens",
            found=f"{most} for a part that pads nothing",
            wanted="a network whose requests of different lengths share a batch: free_axes.AXIS.pad, and a"
            " max_batch_size above 1",
            todo="add pad, or bound the rows alone by max_batch_size",
        )
    bound = {"tritonkit.max_batch_tokens": str(most)} if most is not None and lengths else {}
    return {"tritonkit.pad": json.dumps(lengths)} | bound if lengths else {}


def warm_batches(part: Part, max_batch_size: int, dynamic_batching: DynamicBatching | None) -> tuple[int, ...]:
    """Batch sizes that warm-up covers: for networks 1 and every preferred size, or the largest without preferred ones.
    Steps are cheap and sequences come one by one, so 1 is enough for them."""
    if part.is_step or part.serving.sequence_batching is not None:
        return (1,)
    preferred = dynamic_batching.preferred_batch_size if dynamic_batching else ()
    return tuple(sorted({1, *(preferred or (max(1, max_batch_size),))}))
