"""The messages of Envoy's rate-limit protocol, `envoy/service/ratelimit/v3/rls.proto`, as far as a gateway uses them.

Fields that are left out here are skipped when a request that has them is read. The whole protocol is on PyPI as
`xds-protos`, whose packages take names that are others' (`google`, `opentelemetry`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["METHOD", "OK", "OVER_LIMIT", "SERVICE", "messages"]

SERVICE, METHOD = "envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit"
OK, OVER_LIMIT = 1, 2
"""Values of the enum `RateLimitResponse.Code`."""

_PACKAGE = "envoy.service.ratelimit.v3"
_COMMON = "envoy.extensions.common.ratelimit.v3"


@cache
def messages() -> tuple[Any, Any]:
    """The classes of `RateLimitRequest` and `RateLimitResponse`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in (_common(descriptor_pb2), _protocol(descriptor_pb2)):
        pool.Add(file)
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("RateLimitRequest", "RateLimitResponse")
    )
    return request, response


def _common(pb: Any) -> Any:
    """The descriptors of a request: keys and values."""
    file = pb.FileDescriptorProto(name="ratelimit.proto", package=_COMMON, syntax="proto3")
    descriptor = file.message_type.add(name="RateLimitDescriptor")
    entry = descriptor.nested_type.add(name="Entry")
    kind = pb.FieldDescriptorProto
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    descriptor.field.add(
        name="entries",
        number=1,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=f".{_COMMON}.RateLimitDescriptor.Entry",
    )
    return file


def _protocol(pb: Any) -> Any:
    """Messages of the protocol: request and response."""
    file = pb.FileDescriptorProto(name="rls.proto", package=_PACKAGE, syntax="proto3", dependency=["ratelimit.proto"])
    kind = pb.FieldDescriptorProto
    request = file.message_type.add(name="RateLimitRequest")
    request.field.add(name="domain", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    request.field.add(
        name="descriptors",
        number=2,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=f".{_COMMON}.RateLimitDescriptor",
    )
    request.field.add(name="hits_addend", number=3, type=kind.TYPE_UINT32, label=kind.LABEL_OPTIONAL)
    response = file.message_type.add(name="RateLimitResponse")
    code = response.enum_type.add(name="Code")
    for number, name in enumerate(("UNKNOWN", "OK", "OVER_LIMIT")):
        code.value.add(name=name, number=number)
    of_code = f".{_PACKAGE}.RateLimitResponse.Code"
    status = response.nested_type.add(name="DescriptorStatus")
    for place in (status, response):
        place.field.add(
            name="code" if place is status else "overall_code",
            number=1,
            type=kind.TYPE_ENUM,
            label=kind.LABEL_OPTIONAL,
            type_name=of_code,
        )
    status.field.add(name="limit_remaining", number=3, type=kind.TYPE_UINT32, label=kind.LABEL_OPTIONAL)
    response.field.add(
        name="statuses",
        number=2,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=f".{_PACKAGE}.RateLimitResponse.DescriptorStatus",
    )
    return file
