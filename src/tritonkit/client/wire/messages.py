"""Every call but inference, through Triton's own protobuf classes.

They come in `tritonclient.grpc`, which loads gRPC (a fifth of a second): at the first such message,
never at import.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tritonkit.errors import InferenceError

if TYPE_CHECKING:
    from tritonkit.client.wire.transport import Method

__all__ = ["message", "parse", "schema"]


@cache
def schema() -> Any:
    """Triton's generated protobuf module, `service_pb2`."""
    from tritonclient.grpc import service_pb2

    return service_pb2


def message(method: Method, **fields: Any) -> bytes:
    """The request message of a call.

    Args:
        method: the call, such as `"ModelMetadata"`.
        **fields: of its request message, such as `name="digits"`.

    Raises:
        ValueError: the message has no such field.
        TypeError: a field takes another type.
    """
    written: bytes = getattr(schema(), f"{method}Request")(**fields).SerializeToString()
    return written


def parse(method: Method, body: bytes | memoryview) -> Any:
    """The response message of a call.

    Raises:
        InferenceError: the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return getattr(schema(), f"{method}Response").FromString(bytes(body))
    except DecodeError as error:
        raise InferenceError(
            method, found="an answer that cannot be read", details=str(error)
        ) from error
