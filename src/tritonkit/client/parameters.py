"""Values a call sends next to its tensors (parameters, a request id, numbers of classes), checked before sending."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.inputs import checked_outputs
from tritonkit.client.wire.parameters import Parameter
from tritonkit.errors import InvalidInput, Unsupported

if TYPE_CHECKING:
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["checked_classes", "checked_parameters", "checked_request_id"]

_BY_ARGUMENT = {
    "timeout": "timeout_s=",
    "priority": "priority=",
    "sequence_id": "model.sequence(correlation_id)",
    "sequence_start": "model.sequence()",
    "sequence_end": "last=True in a sequence",
    "binary_data_output": "outputs=",
}
"""Triton's own parameters, each with our argument that sets it."""

_OF_SERVER = "triton_"
"""Prefix of Triton's own parameters: it refuses other parameters with this prefix."""

_MOST_BYTES = 65536
"""Most bytes of a request id, which is in every answer and in the server's log."""

_MOST_CLASSES = 2**31 - 1

_CLASSIFIED = frozenset(("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"))
"""Datatypes whose values Triton can rank (its TopkClassifications)."""


def checked_parameters(where: str, parameters: Any) -> dict[str, Parameter]:
    """The parameters of a request, with numpy's scalars as Python's own values.

    Raises:
        InvalidInput: a name that is Triton's own, or a value that no parameter can hold.
    """
    if not isinstance(parameters, Mapping):
        raise InvalidInput(
            where,
            found=f"parameters= is a {type(parameters).__name__}",
            wanted='values by name, such as parameters={"level": 3}',
            todo='pass an input of that name as inputs={"parameters": ...}',
        )
    return {name: _checked(where, name, value) for name, value in parameters.items()}


def _checked(where: str, name: Any, value: Any) -> Parameter:
    where = f"{where}, parameter {name}"
    if not isinstance(name, str) or not name:
        raise InvalidInput(where, found=f"the name {name!r}", wanted="a str that is not empty")
    if name in _BY_ARGUMENT or name.startswith(_OF_SERVER):
        argument = _BY_ARGUMENT.get(name)
        raise InvalidInput(
            where,
            found="a parameter that the server reserves for itself",
            wanted="a name that the model itself defines",
            todo=f"use {argument}" if argument else "",
        )
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise InvalidInput(where, found=f"a {type(value).__name__}", wanted="a str, an int, a float or a bool")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInput(where, found=str(value), wanted="a whole number of 64 bits with a sign")
    _check_text(where, name, "the name")
    if isinstance(value, str):
        _check_text(where, value, "the value")
    return value


def checked_request_id(where: str, request_id: Any) -> None:
    """Refuse an id that a request cannot carry.

    Raises:
        InvalidInput: not a text, or a very long one.
    """
    if not isinstance(request_id, str):
        raise InvalidInput(
            where,
            found=f"request_id= is a {type(request_id).__name__}",
            wanted="a str, which comes back in the answer",
            todo='pass an input of that name as inputs={"request_id": ...}',
        )
    _check_text(where, request_id, "request_id=")
    if len(request_id.encode()) > _MOST_BYTES:
        raise InvalidInput(
            where, found=f"a request_id of {len(request_id.encode())} bytes", wanted=f"at most {_MOST_BYTES}"
        )


def _check_text(where: str, text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            where, found=f"{what} is not valid Unicode (a lone surrogate)", wanted="text that UTF-8 can carry"
        ) from error


def checked_classes(
    signature: ModelSignature, outputs: tuple[str, ...] | None, classification: int | Mapping[str, int]
) -> tuple[tuple[str, int], ...]:
    """The number of classes for each output that returns them in place of its values.

    Raises:
        InvalidInput: a number that is not above 0, or an output that is unknown, not requested, or not numbers.
        Unsupported: the server is not Triton.
    """
    where = f"model {signature.name}"
    if not signature.configured:
        raise Unsupported(
            where,
            found="classification, an extension of Triton that this server does not offer",
            wanted="a Triton server",
            todo="call without classification=",
        )
    output_names = tuple(signature.outputs) if outputs is None else outputs
    if not isinstance(classification, Mapping):
        classification = dict.fromkeys(output_names, classification)
    for name in checked_outputs(signature, tuple(classification)) or ():
        _check_classes(signature, name, classification[name], output_names)
    return tuple(sorted((name, int(count)) for name, count in classification.items()))


def _check_classes(signature: ModelSignature, name: str, count: Any, output_names: tuple[str, ...]) -> None:
    where = f"model {signature.name}, output {name}"
    whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    if not whole or not 0 < count <= _MOST_CLASSES:
        raise InvalidInput(
            where, found=f"classification={count!r}", wanted="the number of best classes to give, a whole number from 1"
        )
    if name not in output_names:
        raise InvalidInput(
            where,
            found="classification= of an output that outputs= leaves out",
            wanted=f"one of {', '.join(output_names)}",
        )
    datatype = signature.outputs[name].datatype
    if datatype not in _CLASSIFIED:
        raise InvalidInput(
            where,
            found=f"classification= of an output of {datatype}, which Triton cannot rank",
            wanted=f"an output of {', '.join(sorted(_CLASSIFIED))}",
            todo='name the outputs to rank, as in classification={"score": 3}',
        )
