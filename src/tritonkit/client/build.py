"""Settings and addresses, made into what a client runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tritonkit.client.core import Core
from tritonkit.client.observers.events import Observers
from tritonkit.client.policy import Breaker, Policy, Retry
from tritonkit.client.policy.resolver import parse_name
from tritonkit.errors import UsageError
from tritonkit.extras import need_package
from tritonkit.wire.limits import AnswerLimit
from tritonkit.wire.transport import checked_timeout

if TYPE_CHECKING:
    from tritonkit.client.cache import PredictionCache
    from tritonkit.client.options import Options
    from tritonkit.client.shm import RegionPool
    from tritonkit.wire.transport import AsyncTransport, Transport

__all__ = ["async_core", "blocking_core"]

_TIMEOUT_S = 30.0


def blocking_core(
    address: str | Sequence[str] | None, transport: Transport | None, options: Options
) -> Core:
    """What a `Client` runs on."""
    return _core("Client", address, transport, options)


def async_core(
    address: str | Sequence[str] | None, transport: AsyncTransport | None, options: Options
) -> Core:
    """What an `AsyncClient` runs on."""
    return _core("AsyncClient", address, transport, options)


def _wire(kind: str, options: Options) -> Callable[..., Any]:
    """What makes the transport of one address."""
    wire = options.get("wire", "http2")
    if wire == "http2":
        from tritonkit.wire.http2 import AsyncHttp2Transport, Http2Transport

        return Http2Transport if kind == "Client" else AsyncHttp2Transport
    if wire == "grpcio":
        need_package("grpc", "tritonkit[grpcio]")
        from tritonkit.wire.grpcio import AsyncGrpcioTransport, GrpcioTransport

        return GrpcioTransport if kind == "Client" else AsyncGrpcioTransport
    raise UsageError(kind, found=f"wire={wire!r}", wanted='"http2" or "grpcio"')


def _core(
    kind: str,
    address: str | Sequence[str] | None,
    transport: Any,
    options: Options,
) -> Core:
    timeout_s = checked_timeout(options.get("timeout_s", _TIMEOUT_S), kind)
    addresses = _addresses(kind, address, transport)
    regions = _regions(options)
    limit = AnswerLimit(options.get("max_response_bytes"))
    if transport is None:
        _check_names(addresses, options)
    policy = Policy(
        addresses,
        (lambda *_: transport)
        if transport is not None
        else _connector(options, _wire(kind, options), limit),
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
        cache=_cache(options),
        batching=options.get("batching"),
        regions=regions,
        observers=Observers(options.get("observers", ())),
    )


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


def _check_names(addresses: Sequence[str], options: Options) -> None:
    """Refuse a name of several servers before it is looked up if keys would travel in plain text.

    Addresses of one server are judged by the transport, which knows what it sends.
    """
    given = [name for name in ("api_key", "bearer", "admin_key") if options.get(name) is not None]
    if not given or options.get("tls") or options.get("allow_plaintext_credentials"):
        return
    names = [name for name in map(parse_name, addresses) if name is not None]
    if names:
        from tritonkit.wire.http2.channel import exposed, is_loopback

        for name in names:
            if not is_loopback(name.host):
                raise exposed(f"dns:{name.target}", given[0])


def _connector(
    options: Options, wire: Callable[..., Any], limit: AnswerLimit
) -> Callable[[str, str | None], Any]:
    """Makes the transport of one server."""
    from tritonkit.wire.http2.secure import TLS, auth_headers

    tls = options.get("tls")
    headers = auth_headers(options.get("api_key"), options.get("bearer"))
    settings = {
        "headers": headers,
        "tls": TLS() if tls is True else tls or None,
        "admin_key": options.get("admin_key"),
        "limit": limit,
        "allow_plaintext_credentials": options.get("allow_plaintext_credentials", False),
    }
    return lambda address, server_name: wire(address, server_name=server_name, **settings)


def _cache(options: Options) -> PredictionCache | None:
    cache = options.get("cache")
    if cache is None:
        return None
    from tritonkit.client.cache import PredictionCache

    return PredictionCache(cache)


def _regions(options: Options) -> RegionPool | None:
    wanted = options.get("shared_memory", False)
    if not wanted:
        return None
    from tritonkit.client.shm import RegionPool, SharedMemory

    return RegionPool(SharedMemory() if wanted is True else wanted)
