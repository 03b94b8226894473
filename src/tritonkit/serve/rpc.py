"""The two gRPC calls that serving makes: ServerLive, and ModelInfer for a model's first request."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.answer import stream_response
from tritonkit.client.wire.http2 import Http2Transport
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.messages import message, parse
from tritonkit.client.wire.secure import Secret
from tritonkit.client.wire.status import in_stream
from tritonkit.errors import ClientError, DeadlineExceeded, ServerUnavailable
from tritonkit.serve.core.keys import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NotAnswered", "Service", "connect"]

_LARGEST = 2**31 - 1
"""Largest answer in bytes: protobuf's limit, because this server runs the user's own models."""


class NotAnswered(Exception):
    """The server refused or did not answer a call; the text is the server's reason.

    Args:
        silent: whether the server gave no answer at all in time.
    """

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent


class Service:
    """The gRPC calls that serving needs; threads may share it."""

    def __init__(self, transport: Http2Transport) -> None:
        self._transport = transport

    def live(self, timeout_s: float) -> bool:
        """Whether the server answers within `timeout_s`."""
        try:
            answer = self._transport.send("ServerLive", [message("ServerLive")], timeout_s)
            return bool(parse("ServerLive", answer).live)
        except ClientError:
            return False

    def infer(self, request: Any, *, decoupled: bool, timeout_s: float) -> None:
        """Send a `ModelInferRequest` and wait for its answer; for all of them if the model is decoupled.

        Raises:
            NotAnswered: the server refused it, or did not answer within `timeout_s`.
        """
        body = [request.SerializeToString()]
        try:
            if decoupled:
                self._stream(body, time.monotonic() + timeout_s)
            else:
                self._transport.send("ModelInfer", body, timeout_s)
        except ClientError as error:
            silent = isinstance(error, DeadlineExceeded | ServerUnavailable)
            raise NotAnswered(error.found, silent=silent) from error

    def _stream(self, body: list[bytes], deadline: float) -> None:
        # The stream ends when both sides have finished; until then Triton keeps it open.
        stream = self._transport.stream(timeout_s=_left(deadline))
        try:
            stream.write(body, _left(deadline))
            stream.end()
            while (answer := stream.read(_left(deadline))) is not None:
                error, _ = stream_response(answer)
                if error:
                    raise in_stream(error, "the stream")
        finally:
            stream.cancel()


@contextlib.contextmanager
def connect(address: str, key: str = "") -> Iterator[Service]:
    """A connection to `host:port` on this machine for the duration of the block; `key` permits admin calls."""
    headers = ((f"triton-grpc-protocol-{HEADER}", Secret(key)),) if key else ()
    transport = Http2Transport(
        address,
        headers=headers,
        limit=AnswerLimit(_LARGEST),
        allow_plaintext_credentials=True,  # the server listens on this machine
    )
    try:
        yield Service(transport)
    finally:
        transport.close()


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
