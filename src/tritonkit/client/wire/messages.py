"""Messages of every call but inference, through Triton's own protobuf classes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.protos import parsed, schema
from tritonkit.client.wire.varint import read_field, read_varint
from tritonkit.errors import InferenceError

if TYPE_CHECKING:
    from tritonkit.client.wire.transport import Method

__all__ = ["message", "parse", "schema"]

_SHORT = 64 * 1024
"""Bytes of a message whose fields are not counted: as objects they take a few MiB at most."""
_MOST_FIELDS = 100_000
_DEEPEST = 8


def message(method: Method, **fields: Any) -> bytes:
    """The request message of a call.

    Args:
        method: the call, such as `"ModelMetadata"`.
        **fields: fields of its request message, such as `name="digits"`.

    Raises:
        ValueError: the message has no such field.
        TypeError: a field takes another type.
    """
    written: bytes = getattr(schema(), f"{method}Request")(**fields).SerializeToString()
    return written


def parse(method: Method, body: bytes | memoryview) -> Any:
    """The response message of a call.

    Raises:
        InferenceError: the bytes are not such a message, or it has more fields than any server needs.
    """
    if len(body) > _SHORT:
        _check_fields(method, memoryview(body))
    try:
        return parsed(f"{method}Response", body)
    except ValueError as error:
        raise InferenceError(method, found="an answer that cannot be read", details=str(error)) from error


def _check_fields(method: Method, body: memoryview) -> None:
    """Refuse a message with too many small fields: each becomes an object of a hundred bytes or more."""
    try:
        left = _left_of(_MOST_FIELDS, body, _DEEPEST)
    except (ValueError, IndexError) as error:
        raise InferenceError(method, found="an answer that cannot be read", details=str(error)) from error
    if left < 0:
        raise InferenceError(
            method,
            found=f"an answer of {len(body)} bytes with more than {_MOST_FIELDS} fields",
            wanted="what a server reports: names, shapes, counters",
        )


def _left_of(left: int, data: memoryview, depth: int) -> int:
    """`left` less the fields of a message and of those inside it; below 0 as soon as there are more."""
    at, end = 0, len(data)
    while at < end and left >= 0:
        left -= 1
        tag, after = read_varint(data, at)
        if tag & 7 in (3, 4):  # a group's ends, which stand alone
            at = after
            continue
        _, start, at = read_field(data, at)
        if depth and tag & 7 == 2 and at - start > _SHORT // 16:
            with suppress(ValueError, IndexError):  # a text, then, and no message
                left = _left_of(left, data[start:at], depth - 1)
    return left
