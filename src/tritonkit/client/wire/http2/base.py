"""The common part of the transports for threads and for tasks."""

from __future__ import annotations

import math
import os
import time
from typing import Final, Generic, TypeVar

from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.http2.call import Call, CallRequest
from tritonkit.client.wire.http2.connection import Connection
from tritonkit.client.wire.http2.ending import answer_of, error_of
from tritonkit.client.wire.http2.headers import RequestHeaders
from tritonkit.client.wire.http2.shared_connection import SharedConnection
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.secure import TLS, Secret, SecretHeaders
from tritonkit.client.wire.status import (
    CANCELLED,
    STREAM,
    checked_size,
    not_in_time,
    place,
    unreachable,
)
from tritonkit.client.wire.transport import Body
from tritonkit.errors import ClientError, DeadlineExceeded, ServerUnavailable

__all__ = ["ATTEMPTS", "HURRY_S", "REACHED_S", "BaseStream", "BaseTransport", "again", "until"]

ATTEMPTS: Final = (False, False, True)
"""Attempts of a call that the peer certainly did not begin, each on a new connection; True for the last."""

REACHED_S: Final = 0.5
"""Seconds in which a server's system must accept a connection, if another server could take the call: half the time
after which the system asks again."""
HURRY_S: Final = 1.0
"""Seconds for the whole connection in that case, TLS and HTTP/2 included."""

C = TypeVar("C", bound=SharedConnection)


class BaseTransport(Generic[C]):
    """One connection to one server, opened at the first call.

    Args:
        address, headers, tls, admin_key, server_name, allow_plaintext_credentials: see `ChannelConfig`.
        connect_timeout_s: seconds to wait for a connection; a call may allow less.
        limit: bounds of answers; all transports of a client share one.

    Raises:
        UsageError: a bad address or header, or credentials that would be sent in plain text.
    """

    def __init__(
        self,
        address: str,
        headers: SecretHeaders = (),
        tls: TLS | None = None,
        admin_key: str | Secret | None = None,
        server_name: str | None = None,
        connect_timeout_s: float = 5.0,
        limit: AnswerLimit | None = None,
        allow_plaintext_credentials: bool = False,
    ) -> None:
        self._config = ChannelConfig(address, headers, tls, admin_key, server_name, allow_plaintext_credentials)
        self._connect_timeout_s = connect_timeout_s
        self._limit = limit or AnswerLimit()
        self._closed = False
        self._connection: C | None = None
        self._old: list[C] = []
        """Connections that take no new calls and still have some."""
        self._prepare()

    def _prepare(self) -> None:
        """Make a transport's own attributes: all constructors take the same arguments."""

    @property
    def address(self) -> str:
        """The server's `host:port`."""
        return self._config.name

    # -- connections

    def _check_usable(self) -> None:
        if self._closed:
            raise self._config.closed()
        if os.getpid() != self._config.pid:
            raise self._config.forked()

    def _new_core(self) -> Connection:
        return Connection(RequestHeaders.of(self._config), self._limit)

    def _connections(self) -> list[C]:
        return self._old if self._connection is None else [*self._old, self._connection]

    def _install(self, connection: C) -> None:
        """Give new calls this connection; older ones end with their calls.

        Raises:
            ServerUnavailable: the server did not greet it in HTTP/2.
        """
        core = connection.core
        if not core.greeted.ready or core.draining:
            problem = f"no HTTP/2 connection: {core.draining or 'no answer in time'}"
            raise unreachable(self.address, problem, unprocessed=True)
        past = self._connections()
        self._old = [old for old in past if old.core.calls]
        self._connection = connection
        for old in past:
            old.retire()

    def renew(self) -> None:
        """See `Transport.renew`."""
        if self._connection is not None and not self._connection.core.draining:
            self._connection.core.draining = "the server is about to end"

    def _not_soon(self) -> ServerUnavailable:
        return unreachable(self.address, f"no connection within {REACHED_S} s", unprocessed=True)

    def _not_connected(self, timeout_s: float) -> DeadlineExceeded:
        return not_in_time(self.address, timeout_s, "no connection")

    # -- calls

    def _not_started(self, request: CallRequest) -> DeadlineExceeded:
        what = "no answer" if request.body is not None else "no stream"
        return not_in_time(place(self.address, request.method, request.body), request.timeout_s, what)

    def _answer(self, call: Call, in_time: bool, request: CallRequest) -> memoryview:
        """The answer of a call that was waited for, or its error."""
        if (answer := answer_of(call)) is not None:
            return answer
        if not in_time:
            raise self._not_started(request)
        raise error_of(call, self._config, request.method, request.body, request.timeout_s)


class BaseStream(Generic[C]):
    """Messages both ways over one call that has begun; `config` is for messages."""

    def __init__(self, config: ChannelConfig, connection: C, call: Call) -> None:
        self._config, self._connection, self._call = config, connection, call

    def _checked_size(self, body: Body) -> int:
        """The message's bytes; an error if it is too large or the stream is over."""
        size = checked_size(self._config.name, STREAM, body)
        if self._call.ended or self._call.problem:
            raise self._error()
        return size

    def _check_end(self) -> None:
        """Raise unless the stream ended well; called when no message is left."""
        self._connection.finished(self._call)
        if self._call.status != 0 or self._call.problem:
            raise self._error()

    def _cancel(self) -> None:
        if not self._call.ended:
            self._call.problem = CANCELLED
            self._connection.cancel(self._call)

    def _error(self) -> ClientError:
        """The reason why nothing more can be sent or read."""
        return error_of(self._call, self._config, STREAM, None, None)

    def _late(self, what: str, timeout_s: float | None) -> DeadlineExceeded:
        return not_in_time(self._config.name, timeout_s or 0.0, what)


def until(timeout_s: float | None) -> float:
    """The `time.monotonic()` moment after this many seconds; None: never."""
    return math.inf if timeout_s is None else time.monotonic() + timeout_s


def again(failed: ServerUnavailable) -> ServerUnavailable:
    """A copy of a failed connection's error, for another caller that waited for it."""
    return ServerUnavailable(failed.where, found=failed.found, todo=failed.todo, unprocessed=True)
