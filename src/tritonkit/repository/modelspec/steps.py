"""The steps of a pipeline: found, and their parameters and tensors checked against `step.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from tritonkit.datatypes import DataType
from tritonkit.errors import SpecError
from tritonkit.repository.modelspec.base import PackageFile
from tritonkit.repository.modelspec.document import nearest, read_document
from tritonkit.repository.modelspec.entries import PipelineStep
from tritonkit.repository.modelspec.files import hold_to_size, resolve_file
from tritonkit.repository.modelspec.step import ResolvedStep, StepContract, StepParameter, StepTensor, to_text
from tritonkit.resources import STEPS, shipped

if TYPE_CHECKING:
    from tritonkit.repository.modelspec.load import Spec

__all__ = ["resolve_step"]


def resolve_step(part: PipelineStep, spec: Spec, root: Path) -> ResolvedStep:
    """A pipeline part with its contract read and its parameters checked against it."""
    # The nearest wins, so a step that a later tritonkit ships under the same name does not change a project.
    places = [shipped(STEPS), root / STEPS, spec.folder / "steps"]
    folders = {file.parent.name: file.parent for place in places for file in place.glob("*/step.yaml")}
    where = f"{spec.file} pipeline.{part.name or part.step}"
    if part.step not in folders:
        raise SpecError(where, found=f"unknown step {part.step!r}", wanted=nearest(part.step, list(folders)))
    folder = folders[part.step]
    contract = read_document(folder / "step.yaml", StepContract)
    values, files = _parameters(part, contract, spec, where)
    inputs, outputs = (_present(tensors, values) for tensors in (contract.inputs, contract.outputs))
    inputs |= _listed_inputs(contract, values, inputs, where)
    for given, present, side in ((part.inputs, inputs, "input"), (part.outputs, outputs, "output")):
        for name in (name for name in given if name not in present):
            raise _no_tensor(part.step, name, side, contract, list(present), where)
    return ResolvedStep(
        name=f"{spec.name}_{part.name or part.step}",
        folder=folder,
        contract=contract,
        parameters=values,
        files=files,
        inputs={name: tensor.resolve(values) for name, tensor in inputs.items()},
        outputs={name: tensor.resolve(values) for name, tensor in outputs.items()},
        optional=frozenset(name for name, tensor in inputs.items() if tensor.optional),
    )


def _present(tensors: Mapping[str, Iterable[StepTensor]], values: dict[str, str]) -> dict[str, StepTensor]:
    """The tensors that a step has under these values of its parameters."""
    chosen = {name: next((one for one in forms if one.exists(values)), None) for name, forms in tensors.items()}
    return {name: tensor for name, tensor in chosen.items() if tensor}


_INPUT = re.compile(rf"([^\s,][^,]*) ({'|'.join(sorted(get_args(DataType)))})( optional)?")
"""An input in a parameter of the type `tensors`."""


def _listed_inputs(
    contract: StepContract, values: dict[str, str], taken: Iterable[str], where: str
) -> dict[str, StepTensor]:
    """The inputs that parameters of the type `tensors` list."""
    listed: dict[str, StepTensor] = {}
    for parameter in (
        name for name, rule in contract.parameters.items() if rule.type == "tensors" and values.get(name)
    ):
        own: dict[str, StepTensor] = {}
        for entry in values[parameter].split(","):
            fits = _INPUT.fullmatch(entry)
            if not fits or fits[2] == "BF16":
                raise SpecError(
                    f"{where}.parameters.{parameter}",
                    found=repr(entry),
                    wanted="`name DTYPE` or `name DTYPE optional`, such as `age FP64`; a name without commas",
                )
            if fits[1] in {*taken, *listed, *own}:
                raise SpecError(f"{where}.parameters.{parameter}", found=f"{fits[1]} twice", wanted="names that differ")
            own[fits[1]] = StepTensor(dtype=cast(DataType, fits[2]), shape=(1,), optional=bool(fits[3]))
        if all(tensor.optional for tensor in own.values()):
            raise SpecError(
                f"{where}.parameters.{parameter}",
                found="all of them are optional",
                wanted="at least one that each request has",
            )
        listed |= own
    return listed


def _no_tensor(step: str, name: str, side: str, contract: StepContract, present: list[str], where: str) -> SpecError:
    """The error of a tensor that a step does not have, or does not have with these parameters."""
    forms = (contract.inputs if side == "input" else contract.outputs).get(name, ())
    if not forms:
        return SpecError(where, found=f"step {step} has no {side} {name!r}", wanted=nearest(name, present))
    needed = " or ".join(
        " and ".join(f"{parameter}: {to_text(value)}" for parameter, value in form.when.items()) for form in forms
    )
    return SpecError(
        f"{where}.parameters",
        found=f"the {side} {name!r} is named, which step {step} does not have with these parameters",
        wanted=needed,
    )


def _parameters(
    part: PipelineStep, contract: StepContract, spec: Spec, where: str
) -> tuple[dict[str, str], dict[str, Path]]:
    """The step's parameters as strings, and the files among them."""
    values: dict[str, str] = {}
    files: dict[str, Path] = {}
    for name in part.parameters:
        if name not in contract.parameters:
            raise SpecError(
                f"{where}.parameters",
                found=f"unknown parameter {name!r}",
                wanted=nearest(name, list(contract.parameters)),
            )
    for name, rule in contract.parameters.items():
        value = part.parameters.get(name, rule.default)
        if rule.follows and name not in part.parameters:
            value = part.parameters.get(rule.follows, contract.parameters[rule.follows].default)
        field = f"{where}.parameters.{name}"
        if value is None:
            if rule.required:
                raise SpecError(field, found="it is missing", wanted=f"{rule.type}: {rule.help}")
        elif rule.type == "file":
            if not isinstance(value, str | PackageFile):
                raise SpecError(field, found=f"{value!r}", wanted="a path in the model's folder")
            files[name] = resolve_file(value, spec, field.removeprefix(f"{spec.file} "))
            if rule.largest_mib is not None:
                hold_to_size(files[name], rule.largest_mib, field)
            values[name] = files[name].name
        else:
            _check_value(value, rule, field)
            values[name] = to_text(value)
    return values, files


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "tensor": (str,),
    "bool": (bool,),
}


def _check_value(value: Any, rule: StepParameter, field: str) -> None:
    """Check the type, the minimum and the choices of a parameter."""
    items: list[Any] = value if isinstance(value, list) else [value]
    kinds: Any = _TYPES[rule.type.removesuffix("s")]
    if isinstance(value, list) and not rule.type.endswith("s"):
        raise SpecError(field, found=f"a list, {value}", wanted=f"one {rule.type}")
    for item in items:
        # bool is an int in Python, but never meant as one here.
        if not isinstance(item, kinds) or (isinstance(item, bool) and bool not in kinds):
            raise SpecError(field, found=f"{item!r}", wanted=rule.type)
        if rule.minimum is not None and float(item) < rule.minimum:
            raise SpecError(field, found=f"{item}", wanted=f"at least {rule.minimum:g}")
        if rule.choices and item not in rule.choices:
            raise SpecError(field, found=f"{item!r}", wanted=f"one of {', '.join(map(str, rule.choices))}")
