"""`step.yaml`: the contract of a pre- or post-processing step, and a spec's parameters checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, cast, get_args

from pydantic import BeforeValidator, Field, model_validator

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import FileReference, Strict
from tritonkit.repository.modelspec.entries import Scalar
from tritonkit.repository.modelspec.python import OwnPackages

__all__ = ["ResolvedStep", "StepContract", "StepParameter", "StepTensor", "StepWindows"]


_TEXT_MIB = 64

ParameterName = Annotated[str, Field(pattern=r"^\$")]


class StepParameter(Strict):
    """One parameter of a step."""

    type: Literal["int", "float", "str", "bool", "file", "floats", "ints", "tensors"]
    """`tensors` is a list of inputs of shape [1], each as `name DTYPE` or `name DTYPE optional`."""
    default: Scalar | list[Scalar] | None = None
    """Its value where a spec gives none; `$name` is the value of another parameter of the same type."""
    required: bool = False
    minimum: float | None = None
    choices: tuple[Scalar, ...] = ()
    place: Literal["model", "version"] = "version"
    """Place of the file: next to config.pbtxt (text under version control), or in the version folder."""
    max_mib: int | None = Field(default=None, ge=1)
    """Largest size in MiB; 64 for a file next to config.pbtxt, unlimited for others."""
    help: str = ""

    @property
    def largest_mib(self) -> int | None:
        """`max_mib` with its default."""
        return self.max_mib or (_TEXT_MIB if self.place == "model" else None)

    @property
    def fits_size(self) -> bool:
        """Whether `$name` in a shape may stand for it: an int that always has a value."""
        return self.type == "int" and self._is_set

    @property
    def fits_dtype(self) -> bool:
        """Whether a `$name` dtype may stand for it: one of a choice of dtypes that always has a value."""
        dtypes = bool(self.choices) and set(self.choices) <= set(get_args(DataType))
        return self.type == "str" and dtypes and self._is_set

    @property
    def follows(self) -> str:
        """The parameter whose value it has by default; empty if it follows none."""
        default = self.default if self.type != "str" else None
        return default[1:] if isinstance(default, str) and default.startswith("$") else ""

    def allows(self, value: Scalar) -> bool:
        """Whether `when` of a tensor may compare it with this value: it has few values, and always one of them."""
        if self.type == "tensors":
            few = value == ""
        else:
            few = isinstance(value, bool) if self.type == "bool" else value in self.choices
        return few and self._is_set

    @property
    def _is_set(self) -> bool:
        return self.required or self.default is not None


class StepTensor(Strict):
    """An input or output of a step; `$name` as its dtype or in its shape is a parameter's value,
    where 0 leaves the axis free."""

    dtype: DataType | ParameterName
    shape: tuple[int | ParameterName, ...]
    optional: bool = False
    """Whether a request may leave it out; only for inputs."""
    when: dict[str, Scalar] = {}
    """Parameters and their values with which the step has the tensor; without any it always has it."""

    def exists(self, values: dict[str, str]) -> bool:
        """Whether the step has it under these values of its parameters."""
        return _fits(self.when, values)

    def resolve(self, values: dict[str, str]) -> tuple[DataType, tuple[int, ...]]:
        """Dtype and shape under these values of the step's parameters."""
        dtype = values[self.dtype[1:]] if self.dtype.startswith("$") else self.dtype
        shape = (int(values[size[1:]]) or -1 if isinstance(size, str) else size for size in self.shape)
        return cast(DataType, dtype), tuple(shape)


class StepWindows(Strict):
    """When a step takes or gives the windows of a document: a request is then one document without a batch axis, and
    the windows are the batch of the network."""

    when: dict[str, Scalar]
    """Parameters and their values with which it does."""
    most: ParameterName | None = None
    """Parameter with the largest number of windows, of a step that gives them."""


def _listed(given: object) -> object:
    return given if isinstance(given, list | tuple) else [given]


Alternatives = Annotated[tuple[StepTensor, ...], BeforeValidator(_listed), Field(min_length=1)]
"""The forms of a tensor under different parameters; the first whose `when` fits counts."""


class StepContract(Strict):
    """The whole of `step.yaml`."""

    description: str
    keeps_sequences: bool = False
    """Whether it keeps something between the requests of a sequence."""
    parameters: dict[str, StepParameter] = {}
    python: OwnPackages | None = None
    """Packages that its Python has for itself."""
    windows: StepWindows | None = None
    inputs: dict[str, Alternatives]
    outputs: dict[str, Alternatives]

    @model_validator(mode="after")
    def _names_known(self) -> Self:
        for name, parameter in self.parameters.items():
            other = self.parameters.get(parameter.follows)
            if parameter.follows and not (other and other.type == parameter.type and not other.follows):
                raise ValueError(f"{name} has the default {parameter.default}; wanted a parameter of its type")
            if other and other.default is None and not other.required:
                raise ValueError(f"{name} has the default {parameter.default}, which has no value by default itself")
        for name, alternatives in (*self.inputs.items(), *self.outputs.items()):
            for tensor in alternatives:
                if tensor.optional and name not in self.inputs:
                    raise ValueError(f"output {name} is optional; only inputs can be optional")
                self._check(name, tensor)
        if self.windows:
            self._check_when("windows", self.windows.when)
            self._check_size("windows", self.windows.most)
        return self

    def _check(self, name: str, tensor: StepTensor) -> None:
        rule = self.parameters.get(tensor.dtype.removeprefix("$"))
        if tensor.dtype.startswith("$") and not (rule and rule.fits_dtype):
            raise ValueError(f"{name} has the dtype {tensor.dtype}; wanted a str parameter whose choices are dtypes")
        for size in tensor.shape:
            self._check_size(name, size)
        self._check_when(name, tensor.when)

    def _check_size(self, name: str, size: int | str | None) -> None:
        rule = self.parameters.get(size[1:]) if isinstance(size, str) else None
        if isinstance(size, str) and not (rule and rule.fits_size):
            raise ValueError(f"{name} has the size {size}; wanted an int parameter")

    def _check_when(self, name: str, when: dict[str, Scalar]) -> None:
        for parameter, value in when.items():
            rule = self.parameters.get(parameter)
            if not (rule and rule.allows(value)):
                raise ValueError(
                    f"{name} has when {parameter}: {to_text(value)}; wanted a bool parameter, one with choices and"
                    ' one of them, or tensors and "", which always has a value'
                )


@dataclass(frozen=True)
class ResolvedStep:
    """A step of a pipeline with its contract and its parameters checked.

    `parameters` are the strings of Triton's configuration. `files` maps a parameter to the present path of its file,
    whose base name is the parameter's string.
    """

    name: str
    folder: Path
    contract: StepContract
    parameters: dict[str, str]
    files: dict[str, Path]
    inputs: dict[str, tuple[DataType, tuple[int, ...]]]
    outputs: dict[str, tuple[DataType, tuple[int, ...]]]
    """Tensor name -> dtype and shape without the batch axis."""
    optional: frozenset[str] = frozenset()
    """Inputs that a request may leave out."""

    @property
    def windows(self) -> bool:
        """Whether a request is one document, in windows before or behind the step, without a batch axis."""
        windows = self.contract.windows
        return windows is not None and _fits(windows.when, self.parameters)

    @property
    def most_windows(self) -> int:
        """The largest number of windows that the step gives; 0 if it gives none."""
        most = self.contract.windows.most if self.contract.windows and self.windows else None
        return int(self.parameters[most[1:]]) if most else 0


def _fits(when: dict[str, Scalar], values: dict[str, str]) -> bool:
    return all(values[name] == to_text(value) for name, value in when.items())


def to_text(value: Scalar | list[Scalar] | FileReference) -> str:
    """A parameter as the string in Triton's configuration: lists comma-separated."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(to_text(item) for item in value)
    return str(value)
