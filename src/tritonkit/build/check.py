"""Hold an exported network against its reference: names, then shapes, then tolerance, then the metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tritonkit.build.artifact import Measured
from tritonkit.build.hooks import load_hook
from tritonkit.build.samples import Batch
from tritonkit.errors import BuildError, GateError
from tritonkit.spec import Spec

__all__ = ["compare", "gate", "single_items"]

Run = Callable[[Batch], Batch]


def compare(
    spec: Spec, batches: Sequence[Batch], singles: Sequence[Batch], candidate: Run, reference: Run
) -> Measured:
    """Run both on every batch; BuildError at the first output that differs in name, shape or value.

    The metric is taken over `batches`; `singles` are only compared.
    """
    everything = [*batches, *singles]
    wanted = [reference(batch) for batch in everything]
    found = [candidate(batch) for batch in everything]
    largest = 0.0
    for batch, got, expected in zip(everything, found, wanted, strict=True):
        _names(spec, got, expected)
        for name, array in got.items():
            _shapes(spec, name, array, expected[name], batch)
            largest = max(largest, _difference(spec, name, array, expected[name]))
    metric, value, base = _metric(spec, found[: len(batches)], wanted[: len(batches)])
    return Measured(metric, value, base, largest, sum(map(_items, batches)))


def gate(spec: Spec, measured: Measured) -> None:
    """GateError when the metric is below what the spec asks for."""
    quality = spec.model.quality
    drop = measured.reference - measured.value
    floor = quality.at_least
    where = f"{spec.file} quality"
    found = f"{measured.metric} is {measured.value:.4f} on {measured.samples} samples"
    if floor is not None and measured.value < floor:
        raise GateError(
            f"{where}.at_least", found=found, wanted=f"at least {floor}",
            todo="train longer or on more data, or lower at_least",
        )  # fmt: skip
    if drop > quality.max_drop:
        raise GateError(
            f"{where}.max_drop", found=f"{found}, {drop:.4f} below the reference's {measured.reference:.4f}",
            wanted=f"a drop of at most {quality.max_drop}", todo="choose another variant, or raise max_drop",
        )  # fmt: skip


def single_items(batches: Sequence[Batch], batched: bool, count: int = 2) -> list[Batch]:
    """The first items alone: a network that only works at the exported batch size fails on them."""
    if not batched:
        return []
    first = batches[0]
    return [{n: a[i : i + 1] for n, a in first.items()} for i in range(min(count, _items(first)))]


def _items(batch: Batch) -> int:
    array = next(iter(batch.values()))
    return int(array.shape[0]) if array.ndim else 1


def _names(spec: Spec, found: Batch, wanted: Batch) -> None:
    if set(found) != set(wanted):
        raise BuildError(
            f"{spec.file} network",
            found=f"the exported file gives {sorted(found)}",
            wanted=f"{sorted(wanted)}",
        )


def _shapes(spec: Spec, name: str, found: Any, wanted: Any, batch: Batch) -> None:
    if found.shape != wanted.shape:
        inputs = ", ".join(f"{n} {list(a.shape)}" for n, a in batch.items())
        raise BuildError(
            f"{spec.file} output {name}",
            found=f"shape {list(found.shape)} for {inputs}",
            wanted=f"{list(wanted.shape)}, as the reference gives",
        )


def _difference(spec: Spec, name: str, found: Any, wanted: Any) -> float:
    """Largest absolute difference, which must lie within the spec's tolerance."""
    import numpy as np

    if not np.issubdtype(wanted.dtype, np.number):
        if not np.array_equal(found, wanted):
            raise BuildError(
                f"{spec.file} output {name}", found="values that differ from the reference's"
            )
        return 0.0
    tolerance = spec.model.quality.tolerance
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    if np.isnan(b).any():
        raise BuildError(
            f"{spec.file} output {name}",
            found=f"the reference itself gives NaN in {int(np.isnan(b).sum())} of {b.size} elements",
            wanted="numbers, which can be compared",
            todo="look at weights and training, or give real input with quality.samples",
        )
    with np.errstate(invalid="ignore"):  # equal infinities differ by nothing
        difference = np.where(a == b, 0.0, np.abs(a - b))
    if not np.allclose(a, b, atol=tolerance.absolute, rtol=tolerance.relative):
        worst = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), a.shape)
        raise BuildError(
            f"{spec.file} quality.tolerance",
            found=f"output {name}{list(map(int, worst))} is {a[worst]:.6g} and the reference's {b[worst]:.6g}",
            wanted=f"within {tolerance.absolute:g} + {tolerance.relative:g} x the reference",
            todo="look for layers that behave differently in training mode, or widen the tolerance",
        )
    return float(difference.max(initial=0.0))


def _metric(spec: Spec, found: list[Batch], wanted: list[Batch]) -> tuple[str, float, float]:
    """Name of the metric, its value for the candidate and for the reference."""
    hook = spec.model.quality.metric
    if hook is None:
        return "cosine", _mean_cosine(found, wanted), 1.0
    function = load_hook(spec, hook, "quality.metric")
    value, base = function(found, wanted), function(wanted, wanted)
    try:
        figures = float(value), float(base)
    except (TypeError, ValueError):
        figures = math.nan, math.nan
    if not all(map(math.isfinite, figures)):
        raise BuildError(
            f"{spec.file} quality.metric",
            found=f"{hook} returned {value!r}, and {base!r} for the reference",
            wanted="a finite number, more is better",
            todo="correct the function: NaN and infinity cannot be held against a bar",
        )
    return hook.split(":")[1], *figures


def _mean_cosine(found: list[Batch], wanted: list[Batch]) -> float:
    """Mean over batches and outputs of the cosine between the two outputs, taken as one vector."""
    import numpy as np

    cosines = []
    for got, expected in zip(found, wanted, strict=True):
        for name in got:
            if not np.issubdtype(expected[name].dtype, np.number):
                cosines.append(1.0)  # equality was checked with the tolerance
                continue
            a, b = (x[name].astype(np.float64).ravel() for x in (got, expected))
            a, b = a[np.isfinite(b)], b[np.isfinite(b)]  # infinities were held equal above
            norms = float(np.linalg.norm(a) * np.linalg.norm(b))
            cosines.append(float(a @ b) / norms if norms else 1.0)
    return sum(cosines) / len(cosines) if cosines else 1.0
