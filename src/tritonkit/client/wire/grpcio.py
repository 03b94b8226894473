"""gRPC's own library as a transport: for HTTP proxies, xDS, or a company's blessing."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from concurrent.futures import CancelledError, Future, wait
from functools import cache, partialmethod
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

import grpc.aio

from tritonkit.client.wire.channel import Address, ChannelConfig
from tritonkit.client.wire.http2.base import BaseTransport
from tritonkit.client.wire.http2.call import Call
from tritonkit.client.wire.status import CANCELLED, CLOSED, STREAM, error_of, not_in_time
from tritonkit.client.wire.transport import Body, Headers
from tritonkit.errors import DeadlineExceeded, InferenceError, UsageError

__all__ = ["AsyncGrpcioTransport", "GrpcioTransport"]

_XDS = "xds.invalid"  # in place of a host, which xDS finds

_GRACE_S = 1.0
"""Seconds after its deadline in which a call must end: gRPC's library ends it, unless its event loop is blocked."""


def refuse_gevent(*, threads: bool) -> None:
    """Refuse to call where gevent has patched what gRPC's event loop waits with: calls would wait for ever.

    Raises:
        UsageError: naming gevent, and the wire that works there.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None:
        return
    patched = monkey.is_module_patched
    if patched("threading") or (threads and patched("socket") and patched("select")):
        raise UsageError(
            'wire="grpcio"',
            found="gevent has patched this process, and gRPC's library waits for ever there",
            wanted='wire="http2", the default: it waits with gevent',
            todo="leave wire= out, or call in a process without gevent's monkey patches",
        )


class AsyncGrpcioTransport(BaseTransport[Any]):
    """See `AsyncTransport`, and `BaseTransport` for the settings; `xds:///NAME` is an address too."""

    def __init__(self, address: str, **settings: Any) -> None:
        xds = address.startswith("xds:")
        super().__init__(f"{_XDS}:443" if xds else address, **settings)
        self._config.name = address if xds else self._config.name
        self._channel: Any = None
        self._most = 0  # bytes of a message that it takes
        self._channels: WeakSet[Any] = WeakSet()  # also those before it that have calls

    async def send(
        self, method: str, body: Body, timeout_s: float, headers: Headers = (), elsewhere: Any = None
    ) -> memoryview:
        """See `AsyncTransport.send`; gRPC's library looks after its connections itself."""
        self._checked_size(method, body, headers)
        call, channel = self._begun("unary_unary", method, headers, b"".join(body), timeout=timeout_s)
        return memoryview(await self.result(call, call, channel, method, body, timeout_s))

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`; a server that is not there is reported by the first read."""
        return _AsyncStream(self, *self._begun("stream_stream", STREAM, headers))

    async def close(self) -> None:
        """See `AsyncTransport.close`."""
        self._closed = True
        if os.getpid() == self._config.pid:
            for channel in [*self._channels]:
                await channel.close()

    async def result(self, work: Any, call: Any, channel: Any, *asked: Any) -> Any:
        """What is awaited of a call for this method, body and timeout, or why it has ended."""
        asked = asked or (STREAM, None, None)
        ended = Call(0, 0, asked[0] == STREAM, self._limit.of(asked[0]))
        cause: BaseException | None = None
        try:
            answer = await work
            if len(answer or b"") <= ended.max_bytes:
                return answer
            ended.oversize = len(answer)
        except asyncio.CancelledError as error:
            cause = error
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            ended.problem = CLOSED if self._closed else CANCELLED
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            cause = error
            status, details = await call.code(), await call.details() or ""
            ready = channel.get_state() is grpc.ChannelConnectivity.READY
            if self._closed:
                ended.problem = CLOSED
            elif status is grpc.StatusCode.UNAVAILABLE and not ready:
                self._lost(ended, channel, details)
            elif size := re.search(r"CLIENT: Received message larger than max \((\d+)", details):
                ended.oversize = int(size[1])
            else:
                ended.status, ended.message = status.value[0], quote(details)
        raise error_of(ended, self._config, *asked) from cause

    def _lost(self, ended: Call, channel: Any, details: str) -> None:
        if channel is self._channel:
            self._channel = None  # a new one connects at once, this one after a pause
        unknown = details.startswith(("errors resolving", "DNS resolution failed"))
        ended.refused = unknown or details.startswith("failed to connect")
        name = f"the name {self._config.address.host} is not known"
        what = f"{name if unknown else 'cannot connect'}: " if ended.refused else ""
        ended.lost = what + details

    def _begun(self, kind: str, method: str, headers: Headers, *request: bytes, **more: Any) -> Any:
        """A call, and its channel, which has to live as long."""
        if self._closed or os.getpid() != self._config.pid:
            raise self._config.closed() if self._closed else self._config.forked()
        refuse_gevent(threads=False)
        self._config.check(headers)
        most = max(map(self._limit.of, ("ModelInfer", "ModelMetadata")))
        if self._channel is None or most != self._most:  # it grows with the models that are learned
            self._most, self._channel = most, self._new_channel(most)
        start = getattr(self._channel, kind)(f"/inference.GRPCInferenceService/{method}")
        call = start(*request, metadata=(*self._config.metadata(method), *headers), **more)
        self._channels.add(self._channel)
        return call, self._channel

    def _new_channel(self, most: int) -> Any:
        config, tls = self._config, self._config.tls
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(self._connect_timeout_s * 1000)),  # an attempt's
        ]
        if config.server_name != _XDS:
            name = Address(config.server_name, config.address.port, False).target
            options.append(("grpc.default_authority", name))
        if tls is None:
            return grpc.aio.insecure_channel(self.address, options)
        authorities = tls.ca or ssl.get_default_verify_paths().cafile
        files = (authorities, tls.key or tls.certificate, tls.certificate)
        pem = [Path(file).read_bytes() if file else None for file in files]
        return grpc.aio.secure_channel(self.address, grpc.ssl_channel_credentials(*pem), options)


class _AsyncStream:
    """See `AsyncMessageStream`."""

    def __init__(self, transport: AsyncGrpcioTransport, call: Any, channel: Any) -> None:
        self._transport, self._call, self._channel = transport, call, channel
        self._reading: asyncio.Future[Any] | None = None

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        self._transport._checked_size(STREAM, body, ())
        await self._done(self._call.write(b"".join(body)), timeout_s, "a message was not taken")

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        self._reading = self._reading or asyncio.ensure_future(self._call.read())
        message = await self._done(self._reading, timeout_s, "no message")
        self._reading = None
        return None if message is grpc.aio.EOF else memoryview(message)

    async def end(self) -> None:
        await self._call.done_writing()

    async def cancel(self) -> None:
        self._call.cancel()

    async def _done(self, work: Any, timeout_s: float | None, what: str) -> Any:
        task = asyncio.ensure_future(work)
        if not (await asyncio.wait({task}, timeout=timeout_s))[0]:
            raise not_in_time(self._transport.address, timeout_s or 0.0, what)
        return await self._transport.result(task, self._call, self._channel)


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """The event loop of a process's threads, in a thread of its own to the end."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    return loop


class _Threads:
    """What awaits, for threads: its methods run in their event loop."""

    def __init__(self, awaits: Any, config: ChannelConfig) -> None:
        self._awaits, self._config = awaits, config
        self.address = config.name

    def _begin(self, name: str, *asked: Any, **named: Any) -> _Pending:
        if os.getpid() != self._config.pid:
            raise self._config.forked()
        refuse_gevent(threads=True)
        longest_s = asked[2] if name == "send" and len(asked) > 2 else named.get("timeout_s")
        work = getattr(self._awaits, name)(*asked, **named)
        answer = asyncio.run_coroutine_threadsafe(work, _loop(self._config.pid))
        return _Pending(self.address, answer, longest_s)

    def _wait(self, name: str, *asked: Any, **named: Any) -> Any:
        return self._begin(name, *asked, **named).result()


class GrpcioTransport(_Threads):
    """See `Transport`, and `AsyncGrpcioTransport` for the settings."""

    begin = partialmethod(_Threads._begin, "send")
    send = partialmethod(_Threads._wait, "send")

    def __init__(self, address: str, **settings: Any) -> None:
        awaits = AsyncGrpcioTransport(address, **settings)
        super().__init__(awaits, awaits._config)

    def renew(self) -> None:
        """See `Transport.renew`; gRPC's library keeps its connections to itself."""

    def stream(self, *asked: Any, **named: Any) -> _Stream:
        """See `Transport.stream`."""
        return _Stream(self._wait("stream", *asked, **named), self._config)

    def close(self) -> None:
        """See `Transport.close`; a fork has a copy of the loop, and no thread that runs it."""
        if os.getpid() != self._config.pid:
            return
        if self._awaits._channels:
            self._wait("close")
        else:  # nothing was called: no loop is needed, nor begun
            self._awaits._closed = True


class _Stream(_Threads):
    """See `MessageStream`."""

    write = partialmethod(_Threads._wait, "write")
    end = partialmethod(_Threads._wait, "end")
    read = partialmethod(_Threads._wait, "read")
    cancel = partialmethod(_Threads._wait, "cancel")


class _Pending:
    """See `Pending`."""

    def __init__(self, address: str, answer: Future[Any], longest_s: float | None) -> None:
        self._address, self._answer = address, answer
        self._longest_s = None if longest_s is None else longest_s + _GRACE_S
        self.cancel = answer.cancel

    def wait(self, seconds: float) -> bool:
        return bool(wait([self._answer], seconds).done)

    def result(self) -> Any:
        try:
            return self._answer.result(self._longest_s)
        except TimeoutError as error:
            if self._answer.done():
                raise
            self._answer.cancel()
            raise DeadlineExceeded(
                self._address,
                found="no answer in time, and no end of the call by gRPC's library",
                wanted="an event loop of gRPC's library that runs",
                todo="nothing may block or replace the threads of this process",
            ) from error
        except CancelledError:
            raise InferenceError(self._address, found=CANCELLED) from None
        except BaseException:  # an interrupt
            self._answer.cancel()
            raise
