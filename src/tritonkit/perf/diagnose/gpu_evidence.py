"""GPUs of a server over the window. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tritonkit.perf.diagnose.clocks import ClockLook
from tritonkit.perf.diagnose.snapshot import Look
from tritonkit.perf.load.gpu import GpuLook, GpuUse

__all__ = ["GpuEvidence", "gpu_evidence"]


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """One GPU.

    Args:
        use: its use, memory, power and energy, by Triton's metrics.
        throttled: the share of looks at its clock that found it lowered; None if the clock is not seen.
        clock: its mean clock relative to the highest one. reasons: the reasons why it is lowered.
    """

    use: GpuUse
    throttled: float | None = None
    clock: float | None = None
    reasons: tuple[str, ...] = ()


def gpu_evidence(looks: Sequence[Look], clocks: Mapping[str, Sequence[ClockLook]]) -> tuple[GpuEvidence, ...]:
    """The GPUs that a server reports; those without figures yet are left out."""
    if len(looks) < 2:
        return ()
    start, seconds = looks[0].at_s, looks[-1].at_s - looks[0].at_s
    by_gpu: dict[str, list[GpuLook]] = {}
    for look in looks:
        for gpu, own in (look.gpus or {}).items():
            by_gpu.setdefault(gpu, []).append(own)
    uses = (GpuUse.of(gpu, own, start, seconds) for gpu, own in sorted(by_gpu.items()))
    return tuple(_with_clocks(use, clocks.get(use.gpu, ())) for use in uses if use is not None)


def _with_clocks(use: GpuUse, looks: Sequence[ClockLook]) -> GpuEvidence:
    if not looks:
        return GpuEvidence(use)
    reasons = tuple(dict.fromkeys(reason for look in looks for reason in look.reasons))
    throttled = fmean(bool(look.reasons) for look in looks)
    return GpuEvidence(use, throttled, fmean(look.mhz / max(look.most_mhz, 1.0) for look in looks), reasons)
