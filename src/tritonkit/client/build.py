"""Makes a client's core from its settings and addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tritonkit.client.cache import PredictionCache
from tritonkit.client.core import Core
from tritonkit.client.observers.events import Observers
from tritonkit.client.policy import Breaker, Policy, Retry
from tritonkit.client.policy.resolver import parse_name
from tritonkit.client.shm import RegionPool, SharedMemory
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.transport import checked_timeout
from tritonkit.errors import UsageError
from tritonkit.extras import need_package

if TYPE_CHECKING:
    from tritonkit.client.options import Options

__all__ = ["make_core"]

_TIMEOUT_S = 30.0


def make_core(kind: str, address: str | Sequence[str] | None, transport: Any, options: Options) -> Core:
    """The core of a client of this kind (`Client` or `AsyncClient`).

    Raises:
        UsageError: a bad address or setting, or not exactly one of address and transport.
    """
    _check_options(kind, options)
    timeout_s = checked_timeout(options.get("timeout_s", _TIMEOUT_S), kind)
    addresses = _addresses(kind, address, transport)
    limit = AnswerLimit(options.get("max_response_bytes"))
    cache, shared = options.get("cache"), options.get("shared_memory")
    regions = RegionPool(SharedMemory() if shared is True else shared) if shared else None
    policy = Policy(
        addresses,
        _connector(kind, addresses, options, limit) if transport is None else lambda *_: transport,
        retry=options.get("retry", Retry()),
        breaker=options.get("breaker", Breaker()),
        hedge=options.get("hedge"),
        limit=options.get("limit"),
        leave=None if regions is None else regions.leave,
    )
    return Core(
        policy,
        timeout_s,
        limit=limit,
        idempotent=options.get("idempotent"),
        cache=None if cache is None else PredictionCache(cache),
        batching=options.get("batching"),
        regions=regions,
        observers=Observers(options.get("observers", ())),
    )


def _check_options(kind: str, options: Options) -> None:
    """Refuse unknown settings: a misspelled one must not be ignored silently."""
    from tritonkit.client.options import Options as Known

    settings = sorted(Known.__annotations__)
    for name in options:
        if name not in settings:
            near = get_close_matches(name, settings, 3) or settings
            raise UsageError(kind, found=f"an unknown setting {name!r}", wanted=" or ".join(near))


def _addresses(kind: str, address: str | Sequence[str] | None, transport: Any) -> tuple[str, ...]:
    if (address is None) == (transport is None):
        raise UsageError(
            kind,
            found="both an address and a transport" if address else "no address",
            wanted=f'one of them, such as {kind}("127.0.0.1:8001")',
        )
    if transport is not None:
        return (transport.address,)
    return (address,) if isinstance(address, str) else tuple(address or ())


def _connector(
    kind: str, addresses: Sequence[str], options: Options, limit: AnswerLimit
) -> Callable[[str, str | None], Any]:
    """Makes the transport of one server."""
    from tritonkit.client.wire.secure import TLS, auth_headers

    wire = _wire(kind, options)
    _check_names(addresses, options)
    tls = options.get("tls")
    settings = {
        "headers": (
            *(options.get("headers") or {}).items(),
            *auth_headers(options.get("api_key"), options.get("bearer")),
        ),
        "tls": TLS() if tls is True else tls or None,
        "admin_key": options.get("admin_key"),
        "limit": limit,
        "allow_plaintext_credentials": options.get("allow_plaintext_credentials", False),
    }
    return lambda address, server_name: wire(address, server_name=server_name, **settings)


def _check_names(addresses: Sequence[str], options: Options) -> None:
    """Refuse a name of several servers before it is looked up if keys would travel in plain text.

    The transport checks the addresses of single servers, because it knows what it sends.
    """
    credentials = [name for name in ("api_key", "bearer", "admin_key") if options.get(name) is not None]
    if not credentials or options.get("tls") or options.get("allow_plaintext_credentials"):
        return
    names = [name for name in map(parse_name, addresses) if name is not None]
    if names:
        from tritonkit.client.wire.channel import exposed, is_loopback

        for name in names:
            if not is_loopback(name.host):
                raise exposed(f"dns:{name.target}", credentials[0])


def _wire(kind: str, options: Options) -> Callable[..., Any]:
    """The class of transports for this wire and kind of client."""
    wire = options.get("wire", "http2")
    if wire == "http2":
        from tritonkit.client.wire.http2 import AsyncHttp2Transport, Http2Transport

        return Http2Transport if kind == "Client" else AsyncHttp2Transport
    if wire == "grpcio":
        need_package("grpc", "tritonkit[grpcio]")
        from tritonkit.client.wire.grpcio import AsyncGrpcioTransport, GrpcioTransport

        return GrpcioTransport if kind == "Client" else AsyncGrpcioTransport
    raise UsageError(kind, found=f"wire={wire!r}", wanted='"http2" or "grpcio"')
