"""Limits of models under load: `loadtest/thresholds.yaml`, and whether a report holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from tritonkit.errors import SpecError, UsageError
from tritonkit.perf.load.openloop.slo import Slo
from tritonkit.repository.modelspec.base import Strict
from tritonkit.repository.modelspec.document import nearest, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tritonkit.perf.load.report import LoadSeries, Report

__all__ = ["Limits", "ModelLimits", "Thresholds", "judge", "limits_for", "read_thresholds"]

_SHIPPED = ("digits", "sentences", "story")
"""Models that the shipped file names, whether or not a project has them."""

_POINTS = (50.0, 95.0, 99.0)

Milliseconds = Annotated[float, Field(gt=0, strict=True)]


class Limits(Strict):
    """Limits of one model; one that is left out is not checked."""

    p50_ms: Milliseconds | None = None
    """Time within which half of the right answers come."""
    p95_ms: Milliseconds | None = None
    p99_ms: Milliseconds | None = None
    error_rate: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.0
    """The largest share of requests that may fail or be answered wrong, 0 to 1."""
    min_rate: Annotated[float, Field(ge=0, strict=True)] | None = None
    """Right answers per second, at least."""
    ttft_p50_ms: Milliseconds | None = None
    """Time within which half of a language model's right answers begin."""
    ttft_p95_ms: Milliseconds | None = None
    ttft_p99_ms: Milliseconds | None = None
    itl_p50_ms: Milliseconds | None = None
    """Time after the piece before within which half of the pieces of a language model's answers come."""
    itl_p95_ms: Milliseconds | None = None
    itl_p99_ms: Milliseconds | None = None

    @property
    def slo(self) -> Slo:
        """The same limits as a target, without `min_rate`."""

        def points(prefix: str) -> dict[float, float]:
            limits = {p: getattr(self, f"{prefix}p{p:g}_ms") for p in _POINTS}
            return {percent: ms for percent, ms in limits.items() if ms is not None}

        return Slo(points(""), self.error_rate, points("ttft_"), points("itl_"))


class ModelLimits(Limits):
    """Limits of one model: those of a tier, some of them replaced by the model's own values."""

    tier: str | None = None


class Thresholds(Strict):
    """The whole file."""

    tiers: dict[str, Limits] = {}
    models: dict[str, ModelLimits] = {}

    @model_validator(mode="after")
    def _known_tiers(self) -> Self:
        for model, limits in self.models.items():
            if limits.tier is not None and limits.tier not in self.tiers:
                raise ValueError(
                    f"models.{model} names the tier {limits.tier!r}; wanted {nearest(limits.tier, list(self.tiers))}"
                )
        return self


def read_thresholds(file: Path, models: Sequence[str]) -> Thresholds:
    """Read a thresholds file.

    Args:
        file: the path of the file.
        models: names of the project's models.

    Raises:
        SpecError: it cannot be read, has an unknown key, tier or model, or a limit out of range.
    """
    try:
        thresholds = read_document(file, Thresholds)
    except SpecError as error:
        raise SpecError(
            error.where,
            found=error.found,
            wanted=error.wanted,
            todo="correct it; docs/loadtest.md says what may stand in a thresholds file",
            details=error.details,
        ) from None
    for model in thresholds.models:
        if model not in models and model not in _SHIPPED:
            raise SpecError(
                f"{file} models.{model}",
                found=f"there is no model {model!r}",
                wanted=nearest(model, models),
                todo="correct the name, or remove it",
            )
    return thresholds


def limits_for(thresholds: Thresholds, model: str, tier: str | None = None, *, language: bool = False) -> Limits:
    """The limits of a model: of the tier if one is named here, otherwise those of the file.

    A model that the file does not name must answer without errors, at any speed.

    Args:
        language: whether it is a language model, whose tokens can have limits.

    Raises:
        UsageError: the file has no such tier, or limits the tokens of a model that has none.
    """
    limits = _limits(thresholds, model, tier)
    if not language and (limits.slo.ttft or limits.slo.itl):
        raise UsageError(
            f"the thresholds of model {model}",
            found="limits of its tokens, ttft or itl",
            wanted="p50_ms, p95_ms, p99_ms, error_rate and min_rate, as it is not a language model",
        )
    return limits


def _limits(thresholds: Thresholds, model: str, tier: str | None) -> Limits:
    if tier is not None:
        if tier not in thresholds.tiers:
            raise UsageError(
                f"tier {tier!r}",
                found="the thresholds file has no such tier",
                wanted=nearest(tier, list(thresholds.tiers)),
            )
        return thresholds.tiers[tier]
    limits = thresholds.models.get(model, ModelLimits())
    base = thresholds.tiers[limits.tier] if limits.tier else Limits()
    own = limits.model_dump(exclude_unset=True, exclude={"tier"})
    return base.model_copy(update=own)


def judge(report: Report, limits: Mapping[str, Limits]) -> list[str]:
    """One line per missed limit; none if all hold.

    A model is judged by its gRPC requests if there are any, otherwise by those over HTTP. A model
    without any request misses.
    """
    missed: list[str] = []
    for model, bounds in limits.items():
        series = next((s for p in ("grpc", "http") for s in report.series if (s.protocol, s.model) == (p, model)), None)
        if series is None:
            missed.append(f"{model}: no request was answered")
        else:
            missed += [f"{model} over {series.protocol}: {text}" for text in _missed(series, bounds)]
    return missed


def _missed(series: LoadSeries, limits: Limits) -> list[str]:
    lines = []
    if series.error_rate > limits.error_rate:
        lines.append(
            f"error rate {series.error_rate:.4f}, at most {limits.error_rate:g} "
            f"({series.failures} of {series.requests}; first: {series.first_failure})"
        )
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        most, measured = getattr(limits, name), getattr(series, name)
        if most is not None and (measured is None or measured > most):
            shown = "no right answer" if measured is None else f"{measured:.2f} ms"
            lines.append(f"{name.removesuffix('_ms')} {shown}, at most {most:g} ms")
    if limits.min_rate is not None and series.rate_per_s < limits.min_rate:
        lines.append(f"{series.rate_per_s:.1f} right answers/s, at least {limits.min_rate:g}")
    return lines
