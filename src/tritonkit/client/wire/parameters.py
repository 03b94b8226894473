"""Parameters of requests, tensors and answers: maps from names to `InferParameter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Parameter", "read_parameters", "set_parameters"]

Parameter: TypeAlias = bool | int | float | str
"""The types of a parameter's value."""

_FIELDS = ((bool, "bool_param"), (int, "int64_param"), (float, "double_param"), (str, "string_param"))
"""The field for each type, in the order of checks: a bool is an int too."""


def set_parameters(message: Any, values: Mapping[str, Parameter]) -> None:
    """Put `values` into `message.parameters`.

    Raises:
        ValueError: no field can hold a value; the message names it.
    """
    for name, value in values.items():
        field = next((field for kind, field in _FIELDS if isinstance(value, kind)), None)
        if field is None:
            raise ValueError(f"parameter {name} is a {type(value).__name__}: a bool, int, float or str is wanted")
        try:
            setattr(message.parameters[name], field, value)
        except UnicodeEncodeError:
            raise
        except ValueError as error:
            raise ValueError(f"parameter {name}={value}: a whole number of 64 bits is wanted") from error


def read_parameters(message: Any) -> dict[str, Parameter | None]:
    """A message's parameters; None if a value has a type that was added to Triton later."""
    if not message.parameters:
        return {}
    return {
        name: getattr(value, field) if (field := value.WhichOneof("parameter_choice")) else None
        for name, value in message.parameters.items()
    }
