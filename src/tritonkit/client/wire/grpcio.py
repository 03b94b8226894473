"""gRPC's own library as a transport, for HTTP proxies, xDS, or a company's policy."""

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
from weakref import WeakSet

import grpc.aio

from tritonkit.client.wire.channel import Address, ChannelConfig
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.status import (
    CANCELLED,
    CLOSED,
    STREAM,
    STREAM_ENDED,
    checked_size,
    error_of_status_number,
    not_in_time,
    place,
    too_long,
    unreachable,
)
from tritonkit.client.wire.transport import Body, Headers
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, UsageError

__all__ = ["AsyncGrpcioTransport", "GrpcioTransport"]

_XDS = "xds.invalid"  # in place of a host, which xDS finds

_GRACE_S = 1.0
"""Seconds after its deadline in which a call must end: gRPC's library ends it, unless its event loop is blocked."""


def refuse_gevent(*, threads: bool) -> None:
    """Refuse to call if gevent has patched the functions with which gRPC's event loop waits: calls would never end.

    Raises:
        UsageError: gevent has patched them; the message names the wire that works there.
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


class AsyncGrpcioTransport:
    """See `AsyncTransport`.

    Args:
        address: an address that `ChannelConfig` accepts, or `xds:///NAME`.
        connect_timeout_s: seconds between two attempts to connect.
        limit: upper bounds on answer size; all transports of a client share one.
        settings: see `ChannelConfig`.
    """

    def __init__(
        self, address: str, connect_timeout_s: float = 5.0, limit: AnswerLimit | None = None, **settings: Any
    ) -> None:
        xds = address.startswith("xds:")
        self._config = ChannelConfig(f"{_XDS}:443" if xds else address, **settings)
        self._config.name = address if xds else self._config.name
        self._connect_timeout_s = connect_timeout_s
        self._limit = limit or AnswerLimit()
        self._closed = False
        self._channel: Any = None
        self._most = 0  # bytes of a message that it takes
        self._channels: WeakSet[Any] = WeakSet()  # also those before it that have calls

    @property
    def address(self) -> str:
        """The server's address."""
        return self._config.name

    def renew(self) -> None:
        """See `Transport.renew`; gRPC's library keeps its connections to itself."""

    async def send(
        self, method: str, body: Body, timeout_s: float, headers: Headers = (), elsewhere: Any = None
    ) -> memoryview:
        """See `AsyncTransport.send`; gRPC's library looks after its connections itself."""
        checked_size(self.address, method, body)
        call, channel = self._begun("unary_unary", method, headers, b"".join(body), timeout=timeout_s)
        return memoryview(await self.result(call, call, channel, method, body, timeout_s))

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`; the first read reports a server that cannot be reached."""
        return _AsyncStream(self, *self._begun("stream_stream", STREAM, headers))

    async def close(self) -> None:
        """See `AsyncTransport.close`."""
        self._closed = True
        if os.getpid() == self._config.pid:
            for channel in [*self._channels]:
                await channel.close()

    async def result(
        self,
        work: Any,
        call: Any,
        channel: Any,
        method: str = STREAM,
        body: Body | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The result of a part of a call, or the error with which the call has ended."""
        where = place(self.address, method, body)
        try:
            answer = await work
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            raise InferenceError(where, found=CLOSED if self._closed else CANCELLED) from error
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise await self._error(call, channel, where, method, timeout_s) from error
        if len(answer or b"") > (most := self._limit.of(method)):
            raise too_long(where, len(answer), most)
        return answer

    async def _error(self, call: Any, channel: Any, where: str, method: str, timeout_s: float | None) -> ClientError:
        """The error of a call that gRPC's library has ended."""
        status, details = await call.code(), await call.details() or ""
        ready = channel.get_state() is grpc.ChannelConnectivity.READY
        if self._closed:
            return InferenceError(where, found=CLOSED)
        if status is grpc.StatusCode.UNAVAILABLE and not ready:
            return self._lost(where, channel, details)
        if size := re.search(r"CLIENT: Received message larger than max \((\d+)", details):
            return too_long(where, int(size[1]), self._limit.of(method))
        if status is grpc.StatusCode.OK:
            return InferenceError(where, found=STREAM_ENDED)
        if status is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
            return not_in_time(where, timeout_s)
        return error_of_status_number(status.value[0], details, where, self._config.has_key, method)

    def _lost(self, where: str, channel: Any, details: str) -> ClientError:
        """The error of a call whose connection could not be made or was lost."""
        if channel is self._channel:
            self._channel = None  # a new one connects immediately, this one after a pause
        unknown = details.startswith(("errors resolving", "DNS resolution failed"))
        if not unknown and not details.startswith("failed to connect"):
            return unreachable(where, details)
        reason = f"the name {self._config.address.host} is not known" if unknown else "cannot connect"
        return unreachable(where, f"{reason}: {details}", unprocessed=True)

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
        checked_size(self._transport.address, STREAM, body)
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
    """A threads' face of an object that awaits: its methods run in the threads' event loop."""

    def __init__(self, awaits: Any, config: ChannelConfig) -> None:
        self._awaits, self._config = awaits, config
        self.address = config.name

    def _begin(self, name: str, *arguments: Any, **named: Any) -> _Pending:
        if os.getpid() != self._config.pid:
            raise self._config.forked()
        refuse_gevent(threads=True)
        longest_s = arguments[2] if name == "send" and len(arguments) > 2 else named.get("timeout_s")
        work = getattr(self._awaits, name)(*arguments, **named)
        answer = asyncio.run_coroutine_threadsafe(work, _loop(self._config.pid))
        return _Pending(self.address, answer, longest_s)

    def _wait(self, name: str, *arguments: Any, **named: Any) -> Any:
        return self._begin(name, *arguments, **named).result()


class GrpcioTransport(_Threads):
    """See `Transport`, and `AsyncGrpcioTransport` for the settings."""

    begin = partialmethod(_Threads._begin, "send")
    send = partialmethod(_Threads._wait, "send")

    def __init__(self, address: str, **settings: Any) -> None:
        awaits = AsyncGrpcioTransport(address, **settings)
        super().__init__(awaits, awaits._config)

    def renew(self) -> None:
        """See `Transport.renew`; gRPC's library keeps its connections to itself."""

    def stream(self, *arguments: Any, **named: Any) -> _Stream:
        """See `Transport.stream`."""
        return _Stream(self._wait("stream", *arguments, **named), self._config)

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
                wanted="a running event loop of gRPC's library",
                todo="nothing may block or replace the threads of this process",
            ) from error
        except CancelledError:
            raise InferenceError(self._address, found=CANCELLED) from None
        except BaseException:  # an interrupt
            self._answer.cancel()
            raise
