"""Makes a caller's inputs into the arrays to send, or refuses them before anything is sent."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.arrays import type_name
from tritonkit.client.conform import conform, fits
from tritonkit.client.values import bytes_array
from tritonkit.client.wire.signature import TensorSpec
from tritonkit.client.wire.tensors import FIXED
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.shm.cuda import CudaDevice
    from tritonkit.client.wire.signature import ModelSignature

__all__ = [
    "MESSAGE_LIMIT",
    "Inputs",
    "assumed_specs",
    "checked_inputs",
    "checked_outputs",
    "checked_sizes",
    "conformed_inputs",
    "items_in",
    "merged_inputs",
]

MESSAGE_LIMIT = 2**31 - 2**20
"""Most bytes of tensor data in one request: a protobuf message holds at most 2 GiB, names included."""


_DATATYPES = {dtype.name: name for name, dtype in FIXED.items()} | {"bfloat16": "BF16"}

_ARGUMENTS = frozenset(
    ["inputs", "outputs", "timeout_s", "priority", "idempotent", "last", "parameters", "request_id", "classification"]
)
"""Arguments of `predict`, which cannot be names of inputs."""

_KEPT_SHAPES = 1024
"""Kept shapes, more than most models need; others are checked each time."""


class Inputs:
    """`checked_inputs` for repeated calls of one model: a shape that has passed once is accepted again.

    This holds for the usual call, with one array that already has the model's type; others are
    checked each time.

    Args:
        signature: the model's inputs and outputs.
        gpu: leaves arrays on a GPU there; None: they are copied to the machine's memory.
    """

    __slots__ = ("_dtype", "_gpu", "_name", "_passed", "_signature")

    def __init__(self, signature: ModelSignature, gpu: CudaDevice | None = None) -> None:
        self._signature = signature
        self._gpu = gpu
        specs = tuple(signature.inputs.values())
        self._name = specs[0].name if len(specs) == 1 else ""
        self._dtype = FIXED.get(specs[0].datatype) if len(specs) == 1 else None
        self._passed: dict[tuple[int, ...], int] = {}

    def checked(self, inputs: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int]:
        """The arrays to send, and their number of items.

        Raises:
            InvalidInput: an input does not fit; the message names the model and the input.
        """
        value: Any = inputs.get(self._name)
        usual = type(value) is np.ndarray and value.dtype is self._dtype and len(inputs) == 1
        if usual:
            items = self._passed.get(value.shape)
            if items is not None:
                return {self._name: value}, items
        arrays = conformed_inputs(self._signature, inputs, self._gpu)
        items = checked_sizes(self._signature, arrays)
        if usual and arrays[self._name] is value and len(self._passed) < _KEPT_SHAPES:
            self._passed[value.shape] = items
        return arrays, items


def checked_inputs(signature: ModelSignature, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Every input as the array to send in one request, batch axis first if the model batches.

    Raises:
        InvalidInput: an input does not fit; the message names the model and the input.
    """
    return Inputs(signature).checked(inputs)[0]


def conformed_inputs(
    signature: ModelSignature, inputs: Mapping[str, Any], gpu: CudaDevice | None = None
) -> dict[str, NDArray[Any]]:
    """`checked_inputs` for any number of items, even more than one request holds."""
    specs = signature.inputs
    if inputs.keys() != specs.keys():
        _check_names(signature, inputs)
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in inputs.items():
        spec = specs[name]
        if not fits(value, spec):
            value = conform(value, spec, f"model {signature.name}, input {name}", gpu)
        arrays[name] = value
    if len(arrays) > 1:
        items_in(signature, arrays)
    return arrays


def checked_sizes(signature: ModelSignature, arrays: Mapping[str, NDArray[Any]]) -> int:
    """The items in one request, if the model and the wire take that much.

    Raises:
        InvalidInput: more items than `max_batch_size`, or more bytes than a message can hold.
    """
    items = items_in(signature, arrays)
    most = signature.max_batch_size
    if items > most > 0:
        raise InvalidInput(
            f"model {signature.name}",
            found=f"a batch of {items}",
            wanted=f"at most {most}, the model's max_batch_size",
            todo="split it into several calls, or let predict_many do it; the server batches them together again",
        )
    total = sum(map(_size, arrays.values()))
    if total > MESSAGE_LIMIT:
        raise InvalidInput(
            f"model {signature.name}",
            found=f"{total} bytes of tensor data",
            wanted=f"at most {MESSAGE_LIMIT} in one request (a protobuf message holds at most 2 GiB)",
            todo="send fewer items in one call",
        )
    return items


def items_in(signature: ModelSignature, arrays: Mapping[str, NDArray[Any]]) -> int:
    """The number of items in the arrays; 1 for a model without a batch axis.

    Raises:
        InvalidInput: one array holds more items than another.
    """
    if not signature.max_batch_size:
        return 1
    sizes = {name: len(array) for name, array in arrays.items() if signature.inputs[name].batched}
    if len(set(sizes.values())) > 1:
        raise InvalidInput(
            f"model {signature.name}",
            found="batches of different sizes: " + ", ".join(f"{k} {v}" for k, v in sizes.items()),
            wanted="the same number of items in every input",
        )
    return next(iter(sizes.values()), 1)


def checked_outputs(signature: ModelSignature, outputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of the outputs to request; None for all.

    Raises:
        InvalidInput: the model has no such output.
    """
    if outputs is None:
        return None
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in names:
        if name not in signature.outputs:
            raise _unknown(signature, "output", name, signature.outputs)
    return names


def assumed_specs(where: str, inputs: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The signature of a model whose server reports none: the inputs as they are given, of any size.

    Raises:
        InvalidInput: no inputs, or one without a datatype, such as Python's numbers.
    """
    if not inputs:
        raise InvalidInput(where, found="no inputs", wanted="at least one")
    return {name: _assumed(f"{where}, input {name}", name, value) for name, value in inputs.items()}


def _assumed(where: str, name: str, value: Any) -> TensorSpec:
    datatype = _DATATYPES.get(type_name(value))
    if datatype is not None:
        return TensorSpec(name, datatype, (-1,) * value.ndim)
    try:
        return TensorSpec(name, "BYTES", (-1,) * bytes_array(value, where).ndim)
    except InvalidInput as error:
        raise InvalidInput(
            where,
            found=f"a {type(value).__name__}, which has no datatype; the server does not declare the model's inputs",
            wanted="a numpy array of numbers, whose dtype is the datatype to send, or texts",
        ) from error


def merged_inputs(model: str, inputs: Mapping[str, Any] | None, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inputs given as a mapping and as arguments, together.

    Raises:
        InvalidInput: an input was given both ways.
    """
    if inputs is None:
        return named
    twice = sorted(inputs.keys() & named.keys())
    if twice:
        raise InvalidInput(
            f"model {model}, input {twice[0]}", found="given twice: in `inputs` and as an argument", wanted="one value"
        )
    return {**inputs, **named} if named else inputs


def _size(array: NDArray[Any]) -> int:
    """Bytes on the wire; 4 bytes with its length precede each BYTES element."""
    if array.dtype.kind == "O":
        return sum(4 + len(cell) for cell in array.flat)
    return array.nbytes


def _check_names(signature: ModelSignature, inputs: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in signature.inputs:
            raise _unknown(signature, "input", name, signature.inputs)
    missing = [name for name, spec in signature.inputs.items() if name not in inputs and not spec.optional]
    if missing:
        taken = [name for name in missing if name in _ARGUMENTS]
        raise InvalidInput(
            f"model {signature.name}",
            found=f"no value for input {', '.join(missing)}",
            wanted=f"values for {', '.join(signature.inputs)}",
            todo=f'predict has an argument of that name: pass inputs={{"{taken[0]}": ...}}' if taken else "",
        )


def _unknown(signature: ModelSignature, kind: str, name: str, candidates: Iterable[str]) -> InvalidInput:
    names = list(candidates)
    near = get_close_matches(name, names, n=1)
    return InvalidInput(
        f"model {signature.name}, {kind} {name}",
        found=f"the model has no such {kind}",
        wanted=f"one of {', '.join(names)}",
        todo=f"did you mean {near[0]}?" if near else "",
    )
