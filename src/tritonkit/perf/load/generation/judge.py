"""A load of a language model held against its targets."""

from __future__ import annotations

from tritonkit.perf.load.generation.results import GenerationReport
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["judge_generation"]


def judge_generation(report: GenerationReport, slo: Slo, min_rate: float | None = None) -> tuple[str, ...]:
    """One line for each target that the run missed.

    Args:
        min_rate: right answers a second, at least.
    """
    lines, name = [], report.model
    if report.error_rate > slo.error_rate:
        first = next(iter(report.words), "")
        lines.append(
            f"{name}: {report.error_rate:.3%} of the requests failed, at most {slo.error_rate:.3%}"
            f" ({report.failures} of {report.requests}; first: {first})"
        )
    if report.repeatable and report.differing:
        lines.append(
            f"{name}: {report.differing} of {report.compared} prompts that were sent twice had answers that"
            " begin differently"
        )
    for key, points, times in (
        ("ttft_", slo.ttft, report.ttft),
        ("itl_", slo.itl, report.itl),
        ("", slo.percentiles, report.latency),
    ):
        for percent, most in points.items():
            if times is None:
                what = "no right answer" if not report.right else "no answer of two tokens"
                lines.append(f"{name}: {key}p{percent:g}: {what}")
            elif (measured := times.at(percent)) > most:
                lines.append(f"{name}: {key}p{percent:g} {measured:.2f} ms, at most {most:g} ms")
    if min_rate is not None and report.rate_per_s < min_rate:
        lines.append(f"{name}: {report.rate_per_s:.2f} right answers/s, at least {min_rate:g}")
    return tuple(lines)
