"""Measurements of `tritonkit plan --save` and the expected requests, as cores, starts and replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from tritonkit.errors import RenderError, UsageError
from tritonkit.repository.modelspec.base import Strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonkit.perf.plan import Measured

__all__ = ["Expected", "Profile", "read_profile"]


def _slo(text: str) -> str:
    """Refuse text that is not a latency target."""
    from tritonkit.perf.load.openloop import parse_slo

    try:
        parse_slo([text])
    except UsageError as error:
        raise ValueError(f"{error.found}; wanted {error.wanted}") from None
    return text


class Expected(Strict):
    """The requests of a model at the busiest moment, and the file with its measurements."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """A file of `tritonkit plan --save`, in the folder of values.yaml."""
    rate_per_s: Annotated[float, Field(gt=0, le=1e9)]
    slo: Annotated[str, AfterValidator(_slo)]
    """A latency target, such as p99=50ms."""
    spare: Annotated[int, Field(ge=0, le=1000, strict=True)] = 1
    """Replicas that may be down at the same time."""


@dataclass(frozen=True)
class Profile:
    """Results of the measurements.

    Args:
        cores: cores of the machine that measured; 0 without measurements.
        start_s: model -> the seconds from a server's start until the model answered.
        replicas: the number that meets all targets, spare ones included; 0 without measurements.
    """

    cores: int = 0
    start_s: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 0


def read_profile(folder: Path, expected: Sequence[Expected]) -> Profile:
    """The profile from all files of a folder together.

    All models are in each pod, so the replicas of one come on top of those of another; spare ones are shared.

    Raises:
        UsageError: a file cannot be read or holds no measurements, or no number of replicas meets a target.
        RenderError: two files are of one model, or of machines with different numbers of cores.
    """
    if not expected:
        return Profile()
    from tritonkit.perf.load.openloop import parse_slo
    from tritonkit.perf.plan import read_measured, size_measured

    by_model: dict[str, Measured] = {}
    replicas = 0
    for entry in expected:
        measured = read_measured(folder / entry.file, "measured")
        first = next(iter(by_model.values()), measured)
        where = str(folder / entry.file)
        if measured.model in by_model:
            raise RenderError(where, found=f"model {measured.model}, once more", wanted="one measurement of each model")
        if measured.cores != first.cores:
            raise RenderError(
                where,
                found=f"measured with {measured.cores} cores",
                wanted=f"{first.cores}, as {expected[0].file}",
                todo="measure all on one kind of machine",
            )
        by_model[measured.model] = measured
        slo = parse_slo([entry.slo])
        replicas += size_measured(measured, entry.rate_per_s, slo, "measured.slo").replicas
    return Profile(
        next(iter(by_model.values())).cores,
        {model: measured.start_s for model, measured in by_model.items()},
        replicas + max(entry.spare for entry in expected),
    )
