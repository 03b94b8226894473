"""A target for latency: `p99=20ms`, `p50=5ms,errors=0.1%`; of a language model `ttft_p99=500ms,itl_p99=50ms` too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonkit.errors import UsageError
from tritonkit.repository.modelspec.units import parse_duration

__all__ = ["Slo", "parse_slo"]

_PERCENTILE = re.compile(r"(?:(ttft|itl)_)?p(\d{1,2}(?:\.\d{1,3})?)")
_WANTED = "such as p99=20ms, or p50=5ms,p99.9=50ms,errors=0.1%"
_WANTED_OF_LANGUAGE = "such as p99=20ms, or ttft_p99=500ms,itl_p99=50ms,errors=0.1%"


@dataclass(frozen=True)
class Slo:
    """The target that every run has to meet.

    Args:
        percentiles: percent -> the most milliseconds for the whole answer.
        error_rate: the largest share of requests that may fail or be answered wrong, 0 to 1.
        ttft: the same as `percentiles` for the time to a language model's first token.
        itl: the same for the time between two pieces of its answers.
    """

    percentiles: Mapping[float, float]
    error_rate: float = 0.0
    ttft: Mapping[float, float] = field(default_factory=dict)
    itl: Mapping[float, float] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [
            f"{prefix}p{percent:g}={ms:g}ms"
            for prefix, points in (("ttft_", self.ttft), ("itl_", self.itl), ("", self.percentiles))
            for percent, ms in points.items()
        ]
        parts += [f"errors={self.error_rate:.3%}"] if self.error_rate else []
        return ",".join(parts)

    @property
    def tightest(self) -> tuple[float, float]:
        """The highest percentile, and its milliseconds: of the whole answer where that is bounded, else of the first
        token, else between tokens."""
        points = self.percentiles or self.ttft or self.itl
        percent = max(points)
        return percent, points[percent]


def parse_slo(texts: Sequence[str], where: str = "--slo", *, language: bool = False) -> Slo:
    """Read targets as they stand on a command line.

    Args:
        language: whether the targets are for a language model, whose tokens can have targets too.

    Raises:
        UsageError: one cannot be read, is given twice, or none bounds a percentile.
    """
    expected = _WANTED_OF_LANGUAGE if language else _WANTED
    points: dict[str, dict[float, float]] = {"": {}, "ttft": {}, "itl": {}}
    errors: list[float] = []
    for part in ",".join(texts).split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        match = _PERCENTILE.fullmatch(name)
        if match and match[1] and not language:
            raise UsageError(
                where,
                found=repr(part),
                wanted=_WANTED,
                todo="ttft and itl are times of a language model's tokens: leave them out here",
            )
        of = points[match[1] or ""] if match else {}
        if name == "errors" and not errors:
            errors.append(_share(value, where, part))
        elif match and (percent := float(match[2])) > 0 and percent not in of:
            of[percent] = _milliseconds(value, where, expected)
        else:
            raise UsageError(where, found=repr(part), wanted=expected)
    if not any(points.values()):
        raise UsageError(where, found="no percentile of the latency", wanted=expected)
    whole, ttft, itl = (dict(sorted(targets.items())) for targets in points.values())
    return Slo(whole, errors[0] if errors else 0.0, ttft, itl)


def _milliseconds(text: str, where: str, expected: str) -> float:
    try:
        milliseconds = parse_duration(text) / 1000
    except ValueError as error:
        raise UsageError(where, found=str(error), wanted=expected) from None
    if not milliseconds:
        raise UsageError(where, found=f"a target of {text}", wanted=expected)
    return milliseconds


def _share(text: str, where: str, part: str) -> float:
    """`0.1%` or `0.001` as a share."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(where, found=repr(part), wanted="a share, such as errors=0.1%")
    return share
