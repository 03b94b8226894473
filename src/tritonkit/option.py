"""An option: the name of a settings field on the command line, and the notation of its value.

A room's settings carry it in the annotation of a field, from which the command line is made:

    timeout_s: Annotated[float, Option("Seconds to wait for an answer.", min=0.1)] = 10.0

A field without an option is not on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Option"]


@dataclass(frozen=True)
class Option:
    """The place of a field on the command line.

    Args:
        help: a sentence about it.
        name: the option, such as `--input`; the field's own name by default.
        metavar: the name of its value in help.
        unit: `time`: seconds, written as 10s, 50ms or 5m; `rate`: requests/s, written as 500 or 500/s.
        min, max: bounds of a number, in the field's unit.
        environment: the variable that stands in for it.
        completes: the kind of value that a shell completes.
    """

    help: str
    name: str = ""
    metavar: str | None = None
    unit: Literal["time", "rate"] | None = None
    min: float | None = None
    max: float | None = None
    environment: str | None = None
    completes: Literal["model", "variants", "address"] | None = None
