"""The service that gateways ask: Envoy's rate-limit protocol over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonkit.errors import ServerStartError, UsageError
from tritonkit.extras import need_package
from tritonkit.operate.gateway.shared_limits import DESCRIPTOR
from tritonkit.operate.gateway.spec import GatewaySpec
from tritonkit.operate.limiter.buckets import REQUIREMENT, Buckets, RedisLostError
from tritonkit.operate.limiter.messages import METHOD, OK, OVER_LIMIT, SERVICE, messages
from tritonkit.operate.limiter.rates import Rate, Rates

__all__ = ["Limiter", "run_limiter"]

_WATCH_S = 0.5
_END_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_UNIX = "unix:"

Said = Callable[[str], object]


class Limiter:
    """Decides for each request whether its caller's bucket has a token.

    Args:
        rates: the callers' rates.
        buckets: their buckets in Redis.
        log: called with a message when Redis is lost, and when it is back.
    """

    def __init__(self, rates: Rates, buckets: Buckets, log: Said = lambda text: None) -> None:
        self._rates, self._buckets, self._said = rates, buckets, log
        _, self._response = messages()

    async def should_rate_limit(self, request: Any, context: Any) -> Any:
        """Answer a `RateLimitRequest`; UNAVAILABLE without Redis, upon which a gateway counts alone."""
        statuses, over = [], False
        try:
            for descriptor in request.descriptors:
                has, left = await self._decide(descriptor, request.hits_addend or 1)
                over = over or not has
                statuses.append({"code": OK if has else OVER_LIMIT, "limit_remaining": left})
        except RedisLostError as error:
            if error.first:
                self._said(f"Redis at {self._buckets.address} is lost: each gateway counts alone")
            grpc = need_package("grpc", REQUIREMENT)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Redis gives no decision")
        return self._response(overall_code=OVER_LIMIT if over else OK, statuses=statuses)

    async def _decide(self, descriptor: Any, tokens: int) -> tuple[bool, int]:
        """Whether a request may pass as far as this descriptor says, and the tokens left."""
        rate = self._rate(descriptor)
        if rate is None:
            return True, 0
        decided = await self._buckets.take(rate, tokens)
        if self._buckets.recovered:
            self._said(f"Redis at {self._buckets.address} answers again")
        return decided

    def _rate(self, descriptor: Any) -> Rate | None:
        entries = [(entry.key, entry.value) for entry in descriptor.entries]
        return self._rates.of(entries[0][1]) if [e[0] for e in entries] == [DESCRIPTOR] else None


def run_limiter(spec: GatewaySpec, folder: Path, listen: str, *, log: Said, ready: Callable[[str], object]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. For the main thread.

    Args:
        spec: the gateway's spec, with the address of Redis.
        folder: the gateway's folder, with its keys; paths in the spec are relative to it.
        listen: `HOST:PORT`, port 0 takes a free one, or `unix:PATH`.
        log: called with messages about events.
        ready: called with the address once the service answers.

    Raises:
        UsageError: the spec names no Redis, a package is missing, the keys cannot be read, or the Redis client does
            not take the address.
        ServerStartError: the service cannot listen at the address.
    """
    need_package("grpc.aio", REQUIREMENT)
    shared = spec.limits.shared
    if shared is None:
        raise UsageError(
            str(folder / "gateway.yaml"),
            found="it names no Redis that gateways share",
            wanted="limits: {shared: {redis: redis://HOST:PORT}}",
        )
    rates, buckets = Rates(folder, spec.jwt, log), Buckets(shared, folder)

    async def run() -> None:
        try:
            if not await buckets.connect():
                log(f"Redis at {buckets.address} does not answer: until it does each gateway counts alone")
            await _serve(Limiter(rates, buckets, log), rates, listen, ready)
        finally:
            await buckets.aclose()

    asyncio.run(run())


async def _serve(limiter: Limiter, rates: Rates, listen: str, ready: Callable[[str], object]) -> None:
    server, address = _bound(limiter, listen)
    await server.start()
    ending = asyncio.Event()
    for one in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(one, ending.set)
    ready(address)
    try:
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _WATCH_S)
            rates.refresh()
    finally:
        await server.stop(_END_S)


def _bound(limiter: Limiter, listen: str) -> tuple[Any, str]:
    """A server that has its port, and its address."""
    import grpc

    request, response = messages()
    # Without this a second one would take half of the requests.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler = grpc.unary_unary_rpc_method_handler(
        limiter.should_rate_limit,
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    if listen.startswith(_UNIX):
        file = Path(listen.removeprefix(_UNIX))
        if file.exists() and not file.is_socket():
            raise UsageError(f"--listen {listen}", found="another file is there", wanted="a path for a socket")
        file.unlink(missing_ok=True)  # what a killed one has left
    elif not listen.rpartition(":")[0] or not listen.rpartition(":")[2].isdigit():
        raise UsageError(f"--listen {listen}", found="no address", wanted="HOST:PORT, or unix:PATH")
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ServerStartError(
            f"the limiter at {listen}",
            found=f"it cannot listen there: {error}",
            wanted="an address of this machine that is free",
            todo="name another one with --listen",
        ) from None
    return server, listen if listen.startswith(_UNIX) else f"{listen.rpartition(':')[0]}:{port}"
