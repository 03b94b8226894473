"""Streams through a real Envoy that last longer than the longest request may."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.waiting import PATIENCE_S, eventually
from tritonkit.operate.gateway import Upstream
from tritonkit.operate.keys import revoke_key

pytestmark = pytest.mark.needs("envoy")

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LONGEST_S, LONGEST_STREAM_S = 0.5, 4.0
"""Time limits of the gateway's requests and streams."""
DIGITS = b"\x0a\x06digits"


class Slow:
    """A gRPC server whose streams are silent for twice the gateway's time, answer twice as far apart, and then stay
    open until they are cancelled."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self,))  # type: ignore[arg-type]
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details: Any) -> Any:
        """gRPC's own health checks succeed."""
        if details.method.startswith("/grpc.health"):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")
        return grpc.stream_stream_rpc_method_handler(self._answer)

    def _answer(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        next(requests)
        # Not after the last answer: a call that is cancelled while that is sent does not come back here.
        context.add_callback(self.left.set)
        for part in (b"1", b"2"):
            self.left.wait(2 * LONGEST_S)
            yield part
        self.left.wait(PATIENCE_S)

    def stop(self) -> None:
        """Calls of it fail from now on."""
        self._server.stop(None).wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Slow]:
    """A server that ends streams slowly."""
    made = Slow()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def gateway(start_gateway: StartGateway, server: Slow) -> Gateway:
    """One that gives a request little time."""
    spec = f"limits: {{timeout_s: {LONGEST_S}, stream_s: {LONGEST_STREAM_S}}}\n"
    made = start_gateway(spec, replicas=(Upstream("slow", server.address),))
    made.add_key("digits", "digits")
    made.reload()
    eventually(lambda: made.admin.healthy("grpc") > 0, "a server that is healthy")
    return made


def test_a_stream_lasts_as_long_as_its_caller_says(gateway: Gateway, server: Slow) -> None:
    """Longer than any request; a caller that leaves is seen behind the gateway."""
    authority = (gateway.places.folder / "tls" / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(authority)
    sent = (("x-api-key", gateway.keys["digits"]), ("x-tritonkit-requests", "1"))
    with grpc.secure_channel(gateway.address, credentials) as channel:
        call = channel.stream_stream(STREAM)(iter([DIGITS]), metadata=sent, timeout=PATIENCE_S)
        began = time.monotonic()
        assert [next(call), next(call)] == [b"1", b"2"]
        assert time.monotonic() - began > LONGEST_S
        assert not server.left.is_set()
        call.cancel()
        assert server.left.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_stream_ends_after_its_key(gateway: Gateway, server: Slow) -> None:
    """A key that is revoked opens no more streams, and one that was open lasts no longer than `stream_s`."""
    server.left.clear()
    gateway.add_key("revoked", "digits")
    gateway.reload()
    authority = (gateway.places.folder / "tls" / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(authority)
    key = {"x-api-key": gateway.keys["revoked"]}
    sent = (*key.items(), ("x-tritonkit-requests", "1"))
    with grpc.secure_channel(gateway.address, credentials) as channel:
        call = channel.stream_stream(STREAM)(iter([DIGITS]), metadata=sent)
        assert next(call) == b"1"
        revoke_key(gateway.places.folder / "keys.json", "revoked")
        gateway.reload()
        assert gateway.get("/v2", key)[0] == 401
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
    # The first one wins: the gateway resets the stream, or its replica, which knows the deadline, ends it.
    assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)
