"""A target for latency: `p99=20ms`, `p50=5ms,errors=0.1%`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonkit.errors import UsageError
from tritonkit.spec.units import parse_duration

__all__ = ["Slo", "parse_slo"]

_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,3})?)")
_WANTED = "such as p99=20ms, or p50=5ms,p99.9=50ms,errors=0.1%"


@dataclass(frozen=True)
class Slo:
    """What is asked of every run.

    Args:
        percentiles: percent -> the most milliseconds.
        error_rate: the largest part of requests that may fail or be answered wrong, 0 to 1.
    """

    percentiles: Mapping[float, float]
    error_rate: float = 0.0

    def __str__(self) -> str:
        parts = [f"p{percent:g}={ms:g}ms" for percent, ms in self.percentiles.items()]
        parts += [f"errors={self.error_rate:.3%}"] if self.error_rate else []
        return ",".join(parts)

    @property
    def tightest(self) -> tuple[float, float]:
        """The highest percentile, and its milliseconds."""
        percent = max(self.percentiles)
        return percent, self.percentiles[percent]


def parse_slo(texts: Sequence[str], where: str = "--slo") -> Slo:
    """Read targets as they stand on a command line.

    Raises:
        UsageError: one cannot be read, is given twice, or none bounds a percentile.
    """
    percentiles: dict[float, float] = {}
    errors: list[float] = []
    for part in ",".join(texts).split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        match = _PERCENTILE.fullmatch(name)
        if name == "errors" and not errors:
            errors.append(_share(value, where, part))
        elif match and (percent := float(match[1])) > 0 and percent not in percentiles:
            percentiles[percent] = _milliseconds(value, where)
        else:
            raise UsageError(where, found=repr(part), wanted=_WANTED)
    if not percentiles:
        raise UsageError(where, found="no percentile of the latency", wanted=_WANTED)
    return Slo(dict(sorted(percentiles.items())), *errors)


def _milliseconds(text: str, where: str) -> float:
    try:
        found = parse_duration(text) / 1000
    except ValueError as error:
        raise UsageError(where, found=str(error), wanted=_WANTED) from None
    if not found:
        raise UsageError(where, found=f"a target of {text}", wanted=_WANTED)
    return found


def _share(text: str, where: str, part: str) -> float:
    """`0.1%` or `0.001` as a share."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(where, found=repr(part), wanted="a share, such as errors=0.1%")
    return share
