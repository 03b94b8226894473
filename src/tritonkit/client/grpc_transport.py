"""Calls over gRPC, and the one border where gRPC's errors become ours."""

from __future__ import annotations

import os
import re
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.client.transport import Method
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    ServerUnavailable,
    UsageError,
)

__all__ = ["GrpcTransport", "parse_address", "translate"]

_OPTIONS = (
    # A tensor has the size it has; protobuf's own limit of 2 GiB still holds.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Triton answers pings more frequent than every 300 s by closing the connection (its
    # --grpc-http2-min-recv-ping-interval-without-data); a call that hangs has a deadline anyway.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # gRPC's own backoff grows to two minutes: a restarted server would look dead that long.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # One client, one connection: otherwise all clients of a process share one, also its failures.
    ("grpc.use_local_subchannel_pool", 1),
    # Proxies for browsers are set in many environments and rarely carry gRPC.
    ("grpc.enable_http_proxy", 0),
)

_ERRORS: dict[grpc.StatusCode, tuple[type[ClientError], str]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: (
        DeadlineExceeded,
        "allow more time with timeout_s, or send less at once",
    ),
    grpc.StatusCode.NOT_FOUND: (
        ModelNotFound,
        "see what is served, and why a model is not: `tritonkit models` or client.models()",
    ),
    grpc.StatusCode.UNAVAILABLE: (
        ServerUnavailable,
        "check that Triton runs there and that this is its gRPC port (8001 unless set)",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        InferenceError,
        "check that this is the gRPC port of a Triton server",
    ),
}
"""The statuses a caller reacts to; every other one is the server's answer to this request."""

_ALIVE_TIMEOUT_S = 1.0

_KEY_HEADER = "triton-grpc-protocol-admin-key"
"""Triton puts the first three words before the name given in `--grpc-restricted-protocol`."""

_RESTRICTED: frozenset[Method] = frozenset({"RepositoryIndex", "RepositoryModelLoad"})
"""Calls that tritonkit's container answers only with the key; no other call carries it."""


def parse_address(address: str) -> str:
    """`host:port` out of `host:port` or `grpc://host:port`.

    Raises:
        UsageError: another scheme, or no port.
    """
    scheme, found, rest = address.rpartition("://")
    target = rest.rstrip("/")
    if found and scheme != "grpc":
        raise UsageError(
            f"address {address}",
            found=f"the scheme {scheme}://",
            wanted="host:port or grpc://host:port",
            todo="use Triton's gRPC port, 8001 unless set; its HTTP port (8000) is not spoken here",
        )
    port = re.fullmatch(r"(?:\[[0-9a-fA-F:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})", target)
    if port is None or not 0 < int(port[1]) < 65536:
        raise UsageError(
            f"address {address}",
            found="no host and port",
            wanted="host:port or grpc://host:port, such as 127.0.0.1:8001 or [::1]:8001",
        )
    return target


def translate(code: grpc.StatusCode, details: str, where: str) -> ClientError:
    """Our error for a gRPC status; every status has one."""
    kind, todo = _ERRORS.get(code, (InferenceError, ""))
    return kind(where, found=f"{code.name}: {details}", todo=todo)


class GrpcTransport:
    """One connection to one server, opened at the first call; threads share it, processes do not.

    Args:
        address: `host:port` or `grpc://host:port`, without TLS.
        admin_key: sent with calls that a server may restrict (its models, loading them).
    """

    def __init__(self, address: str, admin_key: str | None = None) -> None:
        self._address = parse_address(address)
        self._key = ((_KEY_HEADER, admin_key),) if admin_key else None
        self._pid = os.getpid()
        self._closed = False
        self._channel = grpc.insecure_channel(self._address, options=_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    @property
    def address(self) -> str:
        """The `host:port` that is called."""
        return self._address

    def call(self, method: Method, request: Any, timeout_s: float) -> Any:
        """See `Transport.call`; also a `UsageError` after `close` or in a forked process."""
        self._check_usable()
        try:
            key = self._key if method in _RESTRICTED else None
            return getattr(self._stub, method)(request, timeout=timeout_s, metadata=key)
        except grpc.RpcError as error:
            raise self._translated(error, request, timeout_s) from error
        except ValueError as error:
            # How gRPC says that another thread closed the channel meanwhile.
            self._check_usable()
            raise InferenceError(self._address, found=f"gRPC refused to send: {error}") from error

    def close(self) -> None:
        """Close the connection; calls under way in other threads end with an error."""
        if self._closed:
            return
        self._closed = True
        # A forked child holds a copy without the threads that would do the closing.
        if os.getpid() == self._pid:
            self._channel.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(
                f"client of {self._address}",
                found="it was closed",
                todo="make a new Client, or call inside its `with` block",
            )
        if os.getpid() != self._pid:
            raise UsageError(
                f"client of {self._address}",
                found=f"made in process {self._pid} and used in a fork of it, {os.getpid()}",
                wanted="one Client per process: a forked connection has lost its threads",
                todo='make the Client after forking, or start workers with the "spawn" method',
            )

    def _translated(self, error: Any, request: Any, timeout_s: float) -> ClientError:
        code, details = error.code(), error.details() or ""
        name = getattr(request, "model_name", "") or getattr(request, "name", "")
        where = f"model {name} at {self._address}" if name else self._address
        if self._closed:
            return InferenceError(where, found="the client was closed while the call was under way")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer within {timeout_s:.3g} s"
        # Triton refuses a call without its key with the status of a server that is not there.
        if "protocol is restricted" in details:
            return InferenceError(
                where,
                found=f"{code.name}: {details}" + (", and was sent another" if self._key else ""),
                wanted="the server's admin key",
                todo="give the server's own: --key-file (of docker compose: deploy/docker/keys/admin-key),"
                " or admin_key= in Python",
            )
        if code is grpc.StatusCode.UNAVAILABLE and self._alive():
            return InferenceError(
                where,
                found=f"{code.name}: {details}",
                wanted="room in the model's queue: the server is up and turned this request away",
                todo="send less at a time, or raise the model's queue limits",
            )
        return translate(code, details, where)

    def _alive(self) -> bool:
        """Whether the server answers at all.

        Triton says UNAVAILABLE for a full queue or an expired request too, and gRPC says it for a
        server that is not there; nothing but their wording tells them apart.
        """
        request = service_pb2.ServerLiveRequest()
        try:
            return bool(self._stub.ServerLive(request, timeout=_ALIVE_TIMEOUT_S).live)
        except (grpc.RpcError, ValueError):
            return False
