"""`step.yaml`: the contract of a pre- or post-processing step, and a spec's parameters held against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tritonkit.spec.base import DataType, FileReference, Strict
from tritonkit.spec.model import Scalar

__all__ = ["ResolvedStep", "StepContract", "StepParameter", "StepTensor"]


class StepParameter(Strict):
    """One parameter of a step."""

    type: Literal["int", "float", "str", "bool", "file", "floats", "ints"]
    default: Scalar | list[Scalar] | None = None
    required: bool = False
    minimum: float | None = None
    choices: tuple[Scalar, ...] = ()
    place: Literal["model", "version"] = "version"
    """Where a file goes: beside config.pbtxt (text under version control) or in the version folder."""
    help: str = ""


class StepTensor(Strict):
    """An input or output of a step; `$name` in its shape is an int parameter's value."""

    dtype: DataType
    shape: tuple[int | Annotated[str, Field(pattern=r"^\$")], ...]


class StepContract(Strict):
    """The whole of `step.yaml`."""

    description: str
    parameters: dict[str, StepParameter] = {}
    inputs: dict[str, StepTensor]
    outputs: dict[str, StepTensor]


@dataclass(frozen=True)
class ResolvedStep:
    """A step of a pipeline with its contract and its parameters checked.

    `parameters` are the strings of Triton's configuration; `files` maps a parameter to where its
    file lies now; a file's string is its base name.
    """

    name: str
    folder: Path
    contract: StepContract
    parameters: dict[str, str]
    files: dict[str, Path]
    inputs: dict[str, tuple[DataType, tuple[int, ...]]]
    outputs: dict[str, tuple[DataType, tuple[int, ...]]]
    """Tensor name -> dtype and shape without the batch axis."""


def to_text(value: Scalar | list[Scalar] | FileReference) -> str:
    """A parameter as the string that Triton's configuration holds: lists comma-separated."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(to_text(item) for item in value)
    return str(value)
