"""Triton's protobuf classes, without the gRPC library that stands before them in `tritonclient`.

`tritonclient` carries the schema of each Triton release in two generated modules. Importing one runs
`tritonclient.grpc`, which loads gRPC (a fifth of a second), and refuses a protobuf older than the generator's.
Here only their serialized descriptors are read. The classes belong to a descriptor pool of this module, so
that a program may import `tritonclient.grpc` as well: no name is registered twice.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

from tritonkit.errors import UsageError

__all__ = ["data_type_name", "parsed", "schema"]

_MODULES = ("model_config_pb2.py", "service_pb2.py")
"""The second file imports the first."""

_lock = Lock()


def schema() -> Any:
    """Every message of Triton's gRPC service and configuration, as `schema().ModelInferRequest`.

    Raises:
        UsageError: `tritonclient` is not installed, or its files hold no descriptors.
    """
    with _lock:  # `cache` alone would let two threads make two classes of one name
        return _schema()


def parsed(name: str, data: bytes | memoryview) -> Any:
    """The message of that name, such as `ModelInferResponse.InferOutputTensor`, out of its bytes.

    Raises:
        ValueError: the bytes are not such a message.
    """
    from google.protobuf.message import DecodeError

    kind, _, inner = name.partition(".")
    message = getattr(schema(), kind)
    try:
        return (getattr(message, inner) if inner else message).FromString(bytes(data))
    except DecodeError as error:
        raise ValueError(str(error)) from error


def data_type_name(number: int) -> str:
    """The name of a `DataType` of a model's configuration, such as `TYPE_FP32`; ValueError if none."""
    value = schema().DataType.values_by_number.get(number)
    if value is None:
        raise ValueError(f"no datatype has the number {number}")
    return str(value.name)


@cache
def _schema() -> SimpleNamespace:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    named: dict[str, Any] = {}
    for file in map(pool.AddSerializedFile, _descriptors()):
        named |= file.enum_types_by_name
        named |= {name: GetMessageClass(one) for name, one in file.message_types_by_name.items()}
    return SimpleNamespace(**named)


def _descriptors() -> list[bytes]:
    """The arguments of `AddSerializedFile(...)` in the generated modules."""
    package = find_spec("tritonclient")
    folders = [] if package is None else [Path(path, "grpc") for path in package.submodule_search_locations or ()]
    try:
        trees = [ast.parse((folders[0] / name).read_bytes()) for name in _MODULES]
    except (IndexError, OSError, SyntaxError) as error:
        raise _no_schema(str(error)) from error
    calls = [
        ast.literal_eval(node.args[0])
        for node in (node for tree in trees for node in ast.walk(tree))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile"
    ]
    if len(calls) != len(_MODULES):
        raise _no_schema(f"{len(calls)} descriptors in {', '.join(_MODULES)}")
    return calls


def _no_schema(details: str) -> UsageError:
    return UsageError(
        "tritonclient",
        found="no readable schema of Triton's messages in it",
        wanted="the package as tritonkit's requirements name it",
        todo="install it again: pip install --force-reinstall tritonclient",
        details=details,
    )
