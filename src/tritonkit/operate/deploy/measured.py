"""What `tritonkit plan --save` measured of models, and the requests that are expected: cores, starts, replicas."""

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
    """Refuse what is no latency target."""
    from tritonkit.perf.load.openloop import parse_slo

    try:
        parse_slo([text])
    except UsageError as error:
        raise ValueError(f"{error.found}; wanted {error.wanted}") from None
    return text


class Expected(Strict):
    """The requests of a model at the busiest moment, beside what was measured of it."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """That `tritonkit plan --save` wrote, beside values.yaml."""
    rate_per_s: Annotated[float, Field(gt=0, le=1e9)]
    slo: Annotated[str, AfterValidator(_slo)]
    """Such as p99=50ms."""
    spare: Annotated[int, Field(ge=0, le=1000, strict=True)] = 1
    """Replicas that may be down at the same time."""


@dataclass(frozen=True)
class Profile:
    """What the measurements say.

    Args:
        cores: of the machine on which they were made; 0 without any.
        start_s: model -> what a server took from its start until the model answered.
        replicas: that hold all targets, spare ones included; 0 without any.
    """

    cores: int = 0
    start_s: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 0


def read_profile(folder: Path, expected: Sequence[Expected]) -> Profile:
    """What the files of a folder say together.

    All models are in each pod, so the replicas of one come on top of those of another; spare ones are shared.

    Raises:
        UsageError: a file cannot be read or is something else, or no number of replicas holds a target.
        RenderError: two of them are of one model, or of machines with different numbers of cores.
    """
    if not expected:
        return Profile()
    from tritonkit.perf.load.openloop import parse_slo
    from tritonkit.perf.plan import read_measured, size_measured

    found: dict[str, Measured] = {}
    replicas = 0
    for each in expected:
        measured = read_measured(folder / each.file, "measured")
        first = next(iter(found.values()), measured)
        where = str(folder / each.file)
        if measured.model in found:
            raise RenderError(where, found=f"model {measured.model}, once more", wanted="one measurement of each model")
        if measured.cores != first.cores:
            raise RenderError(
                where,
                found=f"measured with {measured.cores} cores",
                wanted=f"{first.cores}, as {expected[0].file}",
                todo="measure all on one kind of machine",
            )
        found[measured.model] = measured
        slo = parse_slo([each.slo])
        replicas += size_measured(measured, each.rate_per_s, slo, "measured.slo").replicas
    return Profile(
        next(iter(found.values())).cores,
        {model: measured.start_s for model, measured in found.items()},
        replicas + max(each.spare for each in expected),
    )
