"""The tables of a build, with one line for a model or one line for each of its variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tritonkit.cli.output import note, print_table

if TYPE_CHECKING:
    from tritonkit.repository.export import MeasuredQuality
    from tritonkit.repository.optimize import Result

__all__ = ["COLUMNS", "build_row", "print_variants"]

COLUMNS = ["model", "variant", "size", "quality", "largest difference", "artifact"]
_VARIANT_COLUMNS = [
    "variant",
    "size",
    "of fp32",
    "quality",
    "drop [95 %]",
    "one item ms",
    "best batch",
    "items/s",
    "speed-up",
    "gate",
]


def build_row(result: Result) -> list[str]:
    """A network, and its quality compared with its reference."""
    from tritonkit.repository.modelspec.units import format_bytes

    artifact = result.artifact
    if artifact is None:
        return [result.model, result.variant, "-", "would be built", "-", "-"]
    quality = artifact.quality
    return [
        result.model,
        artifact.label,
        format_bytes(artifact.size_bytes),
        _quality(result),
        "-" if quality is None else f"{quality.max_difference:.2e}",
        "cached" if result.cached else "built",
    ]


def _quality(result: Result) -> str:
    """The metric; or that the gate judged no answers, which a model.py does not need."""
    quality = result.artifact.quality if result.artifact else None
    if quality is None:
        return "-" if result.measured else "not judged"
    return f"{quality.metric} {quality.value:.4f} (reference {quality.reference:.4f})"


def print_variants(results: Sequence[Result], served: Mapping[str, str] | None = None) -> None:
    """One table for each model; below it, why a variant was refused or could not be made."""
    from tritonkit.repository.optimize.variants import PLAINS

    for model in dict.fromkeys(result.model for result in results):
        mine = [result for result in results if result.model == model]
        base = next((r for r in mine if r.variant in PLAINS), None)
        chosen = (served or {}).get(model)
        print_table(model, _VARIANT_COLUMNS, [_row(r, base, r.variant == chosen) for r in mine])
        for result in mine:
            for line in _remarks(result):
                note(f"{result.variant}: {line}")
        print()


def _row(result: Result, base: Result | None, served: bool) -> list[str]:
    from tritonkit.repository.modelspec.units import format_bytes

    artifact, timing = result.artifact, result.timing
    if artifact is None:
        gate = "cannot be made" if result.problem else "would be built"
        return [result.variant, *("-" * (len(_VARIANT_COLUMNS) - 2)), gate]
    plain = base.artifact if base else None
    return [
        artifact.label,
        format_bytes(artifact.size_bytes),
        f"{artifact.size_bytes / plain.size_bytes:.2f}" if plain else "-",
        _value(artifact.quality),
        _drop(artifact.quality),
        f"{timing.batch1_ms:.3g}" if timing else "-",
        str(timing.best_batch) if timing else "-",
        f"{timing.per_s:.0f}" if timing else "-",
        f"{timing.per_s / base.timing.per_s:.2f}" if timing and base and base.timing else "-",
        _gate(result) + (", served" if served else ""),
    ]


def _value(quality: MeasuredQuality | None) -> str:
    return "-" if quality is None else f"{quality.metric} {quality.value:.4f}"


def _drop(quality: MeasuredQuality | None) -> str:
    if quality is None:
        return "-"
    if quality.drop_low is None or quality.drop_high is None:
        return f"{quality.drop:.4f}"
    return f"{quality.drop:.4f} [{quality.drop_low:.4f}, {quality.drop_high:.4f}]"


def _gate(result: Result) -> str:
    if result.outcome is None:
        return "in the cache"
    if not result.measured:
        return "not judged"
    if not result.passed:
        return "refused"
    return "passed, within noise" if result.outcome.within_noise else "passed"


def _remarks(result: Result) -> list[str]:
    artifact = result.artifact
    lines = list(artifact.notes) if artifact else []
    if artifact and artifact.quality and len(artifact.quality.parts) > 1:
        parts = artifact.quality.parts.items()
        judged = ", ".join(f"{label} {value:.4f}" for label, value in parts)
        lines.append(f"{artifact.quality.metric} of each output or group of columns: {judged}")
    if result.outcome:
        lines += [f"refused: {miss.found}; wanted {miss.wanted}; {miss.todo}" for miss in result.outcome.misses]
    if result.problem is not None:
        lines.append(result.problem.in_a_line())
    return lines
