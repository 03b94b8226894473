"""Test whether an item that is padded to a longer one's size keeps the answer that it gets alone.

Servers join requests of different sizes along the axis of `free_axes.AXIS.pad`: each is padded to the longest of
its batch, and its outputs are cut back. If a network uses the padding, an answer depends on the other items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Independence, Signature, TensorInfo
from tritonkit.repository.export.comparing import apart, differs_by, may_be_rare, rare, tipped
from tritonkit.repository.export.neighbors import groups_of, join
from tritonkit.repository.export.ready.prepared import PreparedSamples
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.export.scores import score_outputs
from tritonkit.repository.modelspec import FreeAxis, Spec
from tritonkit.repository.modelspec.quality import Tolerance

__all__ = ["Padding", "judge_padded", "padding_of", "prove_padded", "with_axes"]

_BUDGET_S = 1.0
_FEWEST = 3
"""Pairs of sizes that are tried in any case, however long they take."""
_MOST_SIZES = 4
_ITEMS = 4
_NO_PAIR = "no item runs that could be filled up: the samples have the largest size"


class _NotNeutralError(Exception):
    """A change that was seen; its text is a sentence."""


@dataclass(frozen=True)
class Padding:
    """The padded axis, its position in each tensor (the batch axis counts), and the padding value of each input."""

    axis: str
    sizes: FreeAxis
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]

    def size_of(self, batch: Batch) -> int:
        """The size of the axis in a batch."""
        name, place = next(iter(self.inputs.items()))
        return int(batch[name].shape[place])

    def filled(self, batch: Batch, size: int) -> Batch:
        """The batch padded to a size, as a server does it."""
        return {name: self._filled(name, array, size) for name, array in batch.items()}

    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch at another size, made of its own values: cut, or repeated."""
        import numpy as np

        return {
            name: np.take(array, np.arange(size) % array.shape[place], place)
            if (place := self.inputs.get(name))
            else array
            for name, array in batch.items()
        }

    def cut(self, outputs: Batch, size: int) -> Batch:
        """The outputs cut back to a size, as a server does it."""
        return {
            name: array[(slice(None),) * place + (slice(size),)] if (place := self.outputs.get(name)) else array
            for name, array in outputs.items()
        }

    def _filled(self, name: str, array: Any, size: int) -> Any:
        import numpy as np

        place = self.inputs.get(name)
        if place is None or array.shape[place] == size:
            return array
        shape = (*array.shape[:place], size - array.shape[place], *array.shape[place + 1 :])
        value = np.asarray(self.sizes.pad[name]).astype(array.dtype)
        return np.concatenate([array, np.full(shape, value)], axis=place)


def padding_of(spec: Spec, signature: Signature) -> Padding | None:
    """The spec's `pad`, applied to a network. None without it, or if it does not fit the inputs, which rendering
    reports."""
    padded = {axis: free for axis, free in spec.model.network.free_axes.items() if free.pad}
    if not padded or not signature.batched:
        return None
    ((axis, sizes),) = padded.items()
    inputs = _places(signature.inputs, axis)
    outputs = _places([with_axes(info, spec) for info in signature.outputs], axis)
    return Padding(axis, sizes, inputs, outputs) if set(inputs) == set(sizes.pad) else None


def with_axes(info: TensorInfo, spec: Spec) -> TensorInfo:
    """The output, with its unnamed free axis named like the network's only free axis. Exporters name input axes and
    leave output axes to inference."""
    free = spec.model.network.free_axes
    if len(free) != 1:
        return info
    return replace(
        info,
        axes=tuple(
            next(iter(free)) if size == -1 and axis not in free else axis
            for size, axis in zip(info.shape, info.axis_names, strict=True)
        ),
    )


def _places(tensors: Sequence[TensorInfo], axis: str) -> dict[str, int]:
    return {info.name: info.axis_names.index(axis) + 1 for info in tensors if axis in info.axis_names}


def prove_padded(
    run: Callable[[Batch], Batch], samples: Sequence[Batch], padding: Padding, tolerance: Tolerance
) -> Independence:
    """Test whether items get the same answers alone and padded next to a longer one.

    Args:
        run: a function from a batch to its outputs, which raises BuildError if it fails.
        samples: batches of any size of the axis.
    """
    pairs: list[tuple[int, int]] = []
    counts: dict[str, list[int]] = {}
    ends = time.monotonic() + _BUDGET_S
    try:
        for items, size in _pairs(samples, padding):
            if len(pairs) >= _FEWEST and time.monotonic() > ends:
                break
            if _hold_to_alone(run, items, size, padding, tolerance, counts):
                pairs.append((padding.size_of(items[0]), size))
        for name, (differing, compared) in counts.items():
            if differing > rare(compared):
                raise _NotNeutralError(f"{differing} of {compared} values of output {name} differ")
    except _NotNeutralError as seen:
        return Independence("coupled", str(seen))
    if not pairs:
        return Independence("unknown", _NO_PAIR)
    shown = ", ".join(f"{short} to {long}" for short, long in pairs[:_MOST_SIZES])
    return Independence("proven", f"filled up along {padding.axis} from {shown} without a change")


def _pairs(samples: Sequence[Batch], padding: Padding) -> Iterator[tuple[list[Batch], int]]:
    """A few items of one size, and a larger size to pad them to.

    The shortest items come first, and items of all sizes come before the next larger size to pad to.
    """
    groups = [group for group in groups_of(samples) if padding.size_of(group[0]) > 0]
    groups += _shortened(groups, padding)
    groups.sort(key=lambda group: padding.size_of(group[0]))
    if len(groups) > _MOST_SIZES:
        step = (len(groups) - 1) / (_MOST_SIZES - 1)
        groups = [groups[round(step * place)] for place in range(_MOST_SIZES)]
    turns = [(group, list(_longer(padding.size_of(group[0]), padding.sizes))) for group in groups]
    for turn in range(_MOST_SIZES):
        for group, sizes in turns:
            if turn < len(sizes):
                yield group[:_ITEMS], sizes[turn]


def _shortened(groups: Sequence[list[Batch]], padding: Padding) -> list[list[Batch]]:
    """Items of half the largest size, cut from the largest ones, for a spec with few sizes and no room above."""
    sizes = {padding.size_of(group[0]) for group in groups}
    if not groups or len(sizes) > 2:
        return []
    shorter = padding.sizes.at_most(max(sizes) // 2)
    if shorter in sizes or shorter >= max(sizes):
        return []
    largest = max(groups, key=lambda group: padding.size_of(group[0]))
    return [[padding.resized(item, shorter) for item in largest[:_ITEMS]]]


def _longer(size: int, sizes: FreeAxis) -> Iterator[int]:
    """Sizes to pad to: twice as large, far larger, a little larger, and one between."""
    lengths = (2 * size, max(4 * size, 64), size + sizes.multiple_of, size + size // 2)
    allowed = (sizes.at_most(larger) for larger in lengths)
    yield from dict.fromkeys(larger for larger in allowed if larger > size)


def _hold_to_alone(
    run: Callable[[Batch], Batch],
    items: Sequence[Batch],
    size: int,
    padding: Padding,
    tolerance: Tolerance,
    counts: dict[str, list[int]],
) -> bool:
    """Check items of one size in a batch with a longer one; False if they do not run alone."""
    short = padding.size_of(items[0])
    longer = padding.resized(items[-1], size)
    try:
        alone = [run(item) for item in items]
        run(longer)
    except BuildError:
        return False
    rows = [padding.filled(items[0], size), longer]
    rows += [padding.filled(item, size) for item in items[1:]]
    try:
        together = run(join(rows))
    except BuildError as error:
        raise _NotNeutralError(
            f"an item of {padding.axis} {short} runs alone, and filled up to {size} it does not: {error.found}"
        ) from error
    for place, (item, expected) in enumerate(zip(items, alone, strict=True)):
        row = place + (place > 0)
        got = padding.cut({n: a[row : row + 1] for n, a in together.items()}, short)
        seen = f"{short} differs from that of the same item alone when it is filled up to {size}"
        _hold_answer(run, item, expected, got, tolerance, counts, f"{padding.axis} {seen}")
    return True


def _hold_answer(
    run: Callable[[Batch], Batch],
    item: Batch,
    answer: Batch,
    got: Batch,
    tolerance: Tolerance,
    counts: dict[str, list[int]],
    seen: str,
) -> None:
    """Check that an item's outputs are the same as alone, except for values that rounding may change."""
    by_rounding: dict[str, Any] = {}
    for name, expected in answer.items():
        differing, count = apart(got[name], expected, tolerance, 0.01), 0
        if differing is not None and got[name].shape == expected.shape:
            by_rounding = by_rounding or tipped(run, item, answer, tolerance)
            differing = differing & ~by_rounding[name]
            count = int(differing.sum())
        if differing is not None and differing.any() and not may_be_rare(item, expected):
            by = differs_by(got[name], expected)
            raise _NotNeutralError(f"output {name} of an item of {seen}{',' * bool(by)}{by}")
        compared = counts.setdefault(name, [0, 0])
        compared[0] += count
        compared[1] += expected.size


def judge_padded(
    spec: Spec,
    run: Callable[[Batch], Batch],
    samples: Sequence[Batch],
    padding: Padding,
    prepared: PreparedSamples | None = None,
) -> Independence:
    """The same test for a network whose numbers are rounded, by the spec's metric and `quality.max_drop`.

    All samples are padded to twice their size, next to an item of that size.
    """
    exact = prove_padded(run, samples, padding, spec.model.quality.tolerance)
    if exact.state != "coupled":
        return exact
    alone, filled = [], []
    for batch in samples:
        outputs = run(batch)
        alone.append(outputs)
        filled.append(_filled_outputs(run, batch, padding) or outputs)
    if any(a.shape != f[n].shape for one, f in zip(alone, filled, strict=True) for n, a in one.items()):
        return exact
    best = score_outputs(spec, alone, alone, prepared)
    worse, change = best.change_to(score_outputs(spec, filled, alone, prepared))
    change = f"filled up to twice the {padding.axis}, {change}"
    if worse <= spec.model.quality.max_drop:
        return Independence("proven", f"within quality.max_drop: {change}")
    return Independence("coupled", f"{exact.seen}; {change}")


def _filled_outputs(run: Callable[[Batch], Batch], batch: Batch, padding: Padding) -> Batch | None:
    """Outputs of a batch next to an item twice as large; None if no larger size is allowed."""
    size, count = padding.size_of(batch), count_items(batch)
    larger = padding.sizes.at_most(2 * size)
    if larger <= size:
        return None
    last = {name: array[-1:] for name, array in batch.items()}
    outputs = run(join([padding.filled(batch, larger), padding.resized(last, larger)]))
    return padding.cut({name: array[:count] for name, array in outputs.items()}, size)
