"""The quality gate: it decides whether a variant may be published."""

from __future__ import annotations

from dataclasses import dataclass

from tritonkit.errors import GateError
from tritonkit.repository.export.artifact import Artifact, MeasuredQuality, worsening
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.timing import VariantTiming

__all__ = ["GateOutcome", "Miss", "judge", "refuse"]


_DATA = "give more or other calibration data (optimize.calibration)"
_LAYERS = f"{_DATA}, by which the layers that cost most are found and stay FP32"
# Part of a variant's name -> advice; the first part that matches counts.
_ADVICE = {
    "pruned": "remove fewer channels (optimize.channels), leave layers out (optimize.keep_channels),"
    " train longer (optimize.epochs)",
    "distilled": "train longer (optimize.epochs), give a larger optimize.student",
    "int8-qat": "train longer or on more data (optimize.epochs, optimize.training)",
    "int8-qdq": _DATA,
    "fp8": _DATA,
    "onnx-int8": _LAYERS,
    "onnx-fp16": _LAYERS,
    "onnx-bf16": _LAYERS,
    "openvino-int8": _LAYERS,
    "llm-": "such as one with more bits (llm-int8, llm-fp32)",
    "int8": _DATA,
}


@dataclass(frozen=True)
class Miss:
    """One limit that a variant misses: the spec's field, the measured value, the limit, and a remedy."""

    field: str
    found: str
    wanted: str
    todo: str


@dataclass(frozen=True)
class GateOutcome:
    """The gate's verdict, passed if no limit was missed. With `within_noise` the metric's drop may be chance."""

    misses: tuple[Miss, ...]
    within_noise: bool = False

    @property
    def passed(self) -> bool:
        """Whether the variant may be published."""
        return not self.misses


def judge(
    spec: Spec,
    artifact: Artifact,
    base: Artifact | None = None,
    timing: VariantTiming | None = None,
    base_timing: VariantTiming | None = None,
) -> GateOutcome:
    """Compare a variant's figures with the limits of the spec.

    `base` is the onnx-fp32 variant; size and latency are judged where both sides are known.
    """
    limits, measured = spec.model.quality, artifact.quality
    misses: list[Miss] = []
    noise = False
    if measured is not None:
        noise = measured.drop_low is not None and measured.drop_low <= 0 < measured.drop
        value = f"{_named(measured)} is {measured.value:.4f} on {measured.samples} samples"
        if limits.at_least is not None and measured.value < limits.at_least:
            todo = _limit(artifact.variant, measured, measured.reference < limits.at_least, "at_least")
            misses.append(Miss("quality.at_least", value, f"at least {limits.at_least}", todo))
        if limits.at_most is not None and measured.value > limits.at_most:
            todo = _limit(artifact.variant, measured, measured.reference > limits.at_most, "at_most")
            misses.append(Miss("quality.at_most", value, f"at most {limits.at_most}", todo))
        pair = measured.value, measured.reference
        less = measured.less_is_better
        real = "; it was measured on made-up numbers: give real input with quality.samples"
        advice = real if limits.samples is None else ""
        misses += _drop(artifact.variant, pair, limits.max_drop, value, noise, measured.metric in less, advice)
        for name, also in measured.also.items():
            text = f"{name} is {also[0]:.4f} on {measured.samples} samples"
            misses += _drop(artifact.variant, also, limits.max_drop, text, False, name in less)
    if base is not None and artifact is not base:
        sizes = (artifact.size_bytes, base.size_bytes)
        misses += _ratio("quality.max_size_ratio", "bytes", sizes, limits.max_size_ratio)
        if timing is not None and base_timing is not None:
            times = (timing.batch1_ms, base_timing.batch1_ms)
            misses += _ratio("quality.max_latency_ratio", "ms", times, limits.max_latency_ratio)
    return GateOutcome(tuple(misses), noise)


def refuse(spec: Spec, artifact: Artifact, outcome: GateOutcome) -> GateError:
    """The error for a variant that may not be published."""
    first = outcome.misses[0]
    return GateError(
        f"{spec.file} {first.field}",
        found=f"{artifact.variant}: {first.found}",
        wanted=first.wanted,
        todo=first.todo,
        details="\n".join(f"also {m.field}: {m.found}; wanted {m.wanted}" for m in outcome.misses[1:]),
    )


def _named(measured: MeasuredQuality) -> str:
    """The metric's name. For the default metric and several outputs or groups of columns, the worst is named too."""
    worst = f" of {measured.worst}" if measured.worst else ""
    return f"{measured.metric}{worst}"


def _limit(variant: str, measured: MeasuredQuality, reference_misses: bool, field: str) -> str:
    """The remedy for a metric beyond a limit, which depends on whether the reference is beyond it too."""
    name = f"the reference ({measured.against})" if measured.against else "the reference"
    change = "lower at_least" if field == "at_least" else "raise at_most"
    if reference_misses:
        return f"{name} itself reaches {measured.reference:.4f}: train it longer or on more or better data, or {change}"
    return (
        f"{name} reaches {measured.reference:.4f}, so it is the variant that loses:"
        f" {_lose_less(variant)}, or {change} if that much may be lost"
    )


def _lose_less(variant: str) -> str:
    """Advice on how to bring a variant closer to its reference, or which other variant to choose."""
    other = "choose another variant (tritonkit build --variants all shows them)"
    for mark, advice in _ADVICE.items():
        if mark in variant:
            return f"{other}, {advice}"
    return other


def _drop(
    variant: str,
    pair: tuple[float, float],
    limit: float,
    text: str,
    noise: bool,
    less_is_better: bool,
    advice: str = "",
) -> list[Miss]:
    value, reference = pair
    drop = worsening(reference, value, less_is_better)
    if drop <= limit:
        return []
    chance = " (chance explains it on this number of samples: measure on more)" if noise else ""
    side, wanted = ("above", "a rise") if less_is_better else ("below", "a drop")
    return [
        Miss(
            "quality.max_drop",
            f"{text}, {drop:.4f} {side} the reference's {reference:.4f}{chance}",
            f"{wanted} of at most {limit}",
            f"{_lose_less(variant)}, or raise max_drop if that much may be lost{advice}",
        )
    ]


def _ratio(field: str, unit: str, pair: tuple[float, float], limit: float | None) -> list[Miss]:
    if limit is None or pair[0] <= limit * pair[1]:
        return []
    ratio = f"{pair[0]:.6g} {unit}, {pair[0] / pair[1]:.2f} times those of onnx-fp32"
    return [Miss(field, ratio, f"at most {limit} times", f"choose another variant, or raise {field}")]
