"""gRPC's own library as a transport: for HTTP proxies, xDS, or a company's blessing."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio

from tritonkit.wire.http2.call import LONGEST_MESSAGE, Call
from tritonkit.wire.http2.channel import Address, ChannelConfig
from tritonkit.wire.http2.status import (
    CANCELLED,
    CLOSED,
    STREAM,
    error_of,
    not_in_time,
    place,
    too_large,
)
from tritonkit.wire.limits import AnswerLimit
from tritonkit.wire.threads import ThreadsTransport
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["AsyncGrpcioTransport", "grpcio_transport"]

_OVERSIZE = re.compile(r"CLIENT: Received message larger than max \((\d+)")


class AsyncGrpcioTransport:
    """See `AsyncTransport`, and `AsyncHttp2Transport` for the settings; `xds:///NAME` is an address too."""

    def __init__(
        self, address: str, connect_timeout_s: float = 5.0, limit: AnswerLimit | None = None, **more: Any
    ) -> None:  # fmt: skip
        xds = address.startswith("xds:")
        self.target = target = ChannelConfig("xds.invalid:443" if xds else address, **more)
        self.address = target.name = address if xds else target.name
        self._limit = limit or AnswerLimit()
        self._most = 0
        self._channel: Any = None
        self._calls: dict[Any, Any] = {}  # those under way, with their channels
        self._closed = False
        self._options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(connect_timeout_s * 1000)),  # for one attempt
        ]
        if not xds:
            name = Address(target.server_name, target.address.port, False).target
            self._options.append(("grpc.default_authority", name))

    async def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `AsyncTransport.send`."""
        message = self.joined(body, method)
        call = self._begun("unary_unary", method, headers, message, timeout=timeout_s)
        try:
            answer: bytes = await call
        except (grpc.RpcError, asyncio.CancelledError) as error:
            raise self.failure(error, call, method, body, timeout_s) from error
        if len(answer) > self._limit.of(method):
            raise self._why((method, body, timeout_s), oversize=len(answer))
        return memoryview(answer)

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`; a server that is not there is reported by the first read."""
        return _AsyncStream(self, self._begun("stream_stream", STREAM, headers))

    async def close(self) -> None:
        """See `AsyncTransport.close`."""
        self._closed, channel, self._channel = True, self._channel, None
        if os.getpid() == self.target.pid:
            for call in [*self._calls]:
                call.cancel()
            if channel is not None:
                await channel.close()

    def joined(self, body: Body, method: str = STREAM) -> bytes:
        """The message in one piece; InvalidInput if protobuf cannot carry it."""
        if (size := sum(memoryview(piece).nbytes for piece in body)) > LONGEST_MESSAGE:
            raise too_large(place(self.address, method, body), size)
        return b"".join(body)

    def failure(self, error: BaseException, call: Any, *asked: Any) -> BaseException:
        """Our error for gRPC's, of a call's method, body and timeout; a cancelled task's as it is."""
        if isinstance(error, asyncio.CancelledError):
            if getattr(asyncio.current_task(), "cancelling", int)():
                return error
            return self._why(asked, problem=CLOSED if self._closed else CANCELLED)
        status, details = error.code(), error.details() or ""  # type: ignore[attr-defined]
        channel = self._calls.get(call, self._channel)
        ready = channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY
        if status is grpc.StatusCode.UNAVAILABLE and not ready:
            if channel is self._channel:
                self._channel = None  # a new one connects at once, this one after a pause
            if details.startswith("failed to connect"):
                return self._why(asked, lost=f"cannot connect: {details}", refused=True)
            if details.startswith(("errors resolving", "DNS resolution failed")):
                found = f"the name {self.target.address.host} is not known: {details}"
                return self._why(asked, lost=found, refused=True)
            return self._why(asked, lost=details)
        if status is grpc.StatusCode.RESOURCE_EXHAUSTED and (size := _OVERSIZE.search(details)):
            return self._why(asked, oversize=int(size[1]))
        return self._why(asked, status=status.value[0], message=quote(details))

    def _why(self, asked: tuple[Any, ...], **outcome: Any) -> Exception:
        method, body, timeout_s = asked or (STREAM, None, None)
        call = Call(0, 0, method == STREAM, self._limit.of(method))
        for name, value in outcome.items():
            setattr(call, name, value)
        return error_of(call, self.target, method, body, timeout_s)

    def _begun(self, kind: str, method: str, headers: Headers, *request: bytes, **more: Any) -> Any:
        if self._closed or os.getpid() != self.target.pid:
            raise self.target.closed() if self._closed else self.target.forked()
        self.target.check(headers)
        most = max(map(self._limit.of, ("ModelInfer", "ModelMetadata")))
        if self._channel is None or most != self._most:  # it grows with the models that are learned
            self._most, self._channel = most, self._new_channel(most)
        start = getattr(self._channel, kind)(f"/inference.GRPCInferenceService/{method}")
        call = start(*request, metadata=(*self.target.metadata(method), *headers), **more)
        self._calls[call] = self._channel  # which lives as long as its calls
        call.add_done_callback(lambda ended: self._calls.pop(ended, None))
        return call

    def _new_channel(self, most: int) -> Any:
        tls, options = self.target.tls, [*self._options, ("grpc.max_receive_message_length", most)]
        if tls is None:
            return grpc.aio.insecure_channel(self.address, options)
        files = (
            tls.ca or ssl.get_default_verify_paths().cafile,
            tls.key or tls.certificate,
            tls.certificate,
        )
        pem = [Path(file).read_bytes() if file else None for file in files]
        options.append(("grpc.ssl_target_name_override", self.target.server_name))
        return grpc.aio.secure_channel(self.address, grpc.ssl_channel_credentials(*pem), options)


def grpcio_transport(address: str, **settings: Any) -> ThreadsTransport:
    """The same for threads."""
    transport = AsyncGrpcioTransport(address, **settings)
    return ThreadsTransport(transport, transport.target)


class _AsyncStream:
    """See `AsyncStream`."""

    def __init__(self, transport: AsyncGrpcioTransport, call: Any) -> None:
        self._transport, self._call = transport, call
        self._reading: asyncio.Future[Any] | None = None

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `AsyncStream.write`."""
        writing = asyncio.ensure_future(self._call.write(self._transport.joined(body)))
        await self._result(writing, timeout_s, "a message was not taken")

    async def end(self) -> None:
        """See `AsyncStream.end`."""
        if not self._call.done():
            await self._call.done_writing()

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `AsyncStream.read`."""
        self._reading = self._reading or asyncio.ensure_future(self._call.read())
        message = await self._result(self._reading, timeout_s, "no message")
        self._reading = None
        return None if message is grpc.aio.EOF else memoryview(message)

    async def cancel(self) -> None:
        """See `AsyncStream.cancel`."""
        self._call.cancel()

    async def _result(self, task: asyncio.Future[Any], timeout_s: float | None, what: str) -> Any:
        if not (await asyncio.wait({task}, timeout=timeout_s))[0]:
            raise not_in_time(self._transport.address, timeout_s or 0.0, what)
        try:
            return task.result()
        except asyncio.InvalidStateError:  # nothing is written after the end: say how that came
            code, details = await self._call.code(), await self._call.details()
            error: BaseException = grpc.aio.AioRpcError(code, None, None, details)
        except (grpc.RpcError, asyncio.CancelledError) as problem:
            error = problem
        self._reading = None
        raise self._transport.failure(error, self._call) from error
