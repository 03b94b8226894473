"""Numbers of a spec, and values with a unit: `500us`, `2ms`, `64MiB`.

Where a unit is wanted a bare number is refused, because its unit would be a guess.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from tritonkit.repository.modelspec.base import MAX_SIZE

__all__ = [
    "Bytes",
    "Microseconds",
    "NaturalInt",
    "PositiveInt",
    "QueueDelay",
    "format_bytes",
    "parse_bytes",
    "parse_duration",
]

_MICROSECONDS = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def _parse(value: object, units: dict[str, int], example: str) -> int:
    """A number and a unit, as a whole number of the smallest unit."""
    expected = f"a number and one of {', '.join(units)}, such as {example}"
    if isinstance(value, int | float):
        raise ValueError(f"{value} has no unit; wanted {expected}")
    match = _PATTERN.fullmatch(str(value).strip())
    if match is None or match[2] not in units:
        raise ValueError(f"{value!r} cannot be read; wanted {expected}")
    amount = Decimal(match[1]) * units[match[2]]
    if amount >= 2**63:
        raise ValueError(f"{value!r} is more than 64 bits hold; wanted {expected}")
    if amount != int(amount):
        raise ValueError(f"{value!r} is finer than one {next(iter(units))}; wanted {expected}")
    return int(amount)


def parse_duration(value: object) -> int:
    """`500us`, `2ms`, `1.5s`, `1min` as whole microseconds, the unit of Triton's configuration."""
    return _parse(value, _MICROSECONDS, "500us")


def parse_bytes(value: object) -> int:
    """`64MiB`, `1GB`, `512B` as bytes."""
    return _parse(value, _BYTES, "64MiB")


def format_bytes(size: float) -> str:
    """A size for people, in binary units: `86.7 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _schema(units: dict[str, int], example: str) -> WithJsonSchema:
    pattern = rf"^\d+(\.\d+)?\s*({'|'.join(units)})$"
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


Microseconds = Annotated[int, BeforeValidator(parse_duration), _schema(_MICROSECONDS, "500us")]
Bytes = Annotated[int, BeforeValidator(parse_bytes), _schema(_BYTES, "64MiB")]

# strict: `true` and "4" are not numbers here.
PositiveInt = Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)]
NaturalInt = Annotated[int, Field(ge=0, le=MAX_SIZE, strict=True)]
# Triton's names for times carry the unit.
QueueDelay = Annotated[Microseconds, Field(serialization_alias="max_queue_delay_microseconds")]
