"""The wire with gRPC's own server, for what its options alone can bring about."""

from __future__ import annotations

import time
from collections.abc import Sequence

import grpc
import pytest

from tests.client.wire.grpc_servers import Answers, body, data_of, grpc_server
from tests.client.wire.kinds import Connect
from tritonkit.errors import InferenceError, InvalidInput, Overloaded, ServerUnavailable

Options = Sequence[tuple[str, int]]


@pytest.mark.parametrize("size", [60_000, 100_000])
def test_trailers_near_the_limit_and_over_it(connect: Connect, answers: Answers, size: int) -> None:
    """64 KiB of an answer's fields are read; more is an error with a reason. The next call goes on."""
    options = [("grpc.max_metadata_size", 200_000), ("grpc.absolute_max_metadata_size", 200_000)]
    with grpc_server(answers, options=options) as (_, port):
        transport = connect(f"127.0.0.1:{port}")
        for _ in range(3):
            if size < 65_536:
                transport.send("ModelInfer", body("trailers", id=str(size)), 60.0)
            else:
                with pytest.raises((InferenceError, Overloaded, ServerUnavailable)):
                    transport.send("ModelInfer", body("trailers", id=str(size)), 60.0)
            assert data_of(transport.send("ModelInfer", body(data=b"x"), 60.0)) == b"x"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_server_that_compresses_unasked(connect: Connect, answers: Answers, compression: grpc.Compression) -> None:
    """gRPC's server does so if it is told to, whatever the client accepts: the error says it."""
    with grpc_server(answers, compression=compression) as (_, port):
        transport = connect(f"127.0.0.1:{port}")
        with pytest.raises(InferenceError, match="a compressed message") as caught:
            transport.send("ModelInfer", body(data=bytes(100_000)), 60.0)
        assert "compression" in caught.value.todo


def test_a_server_that_looks_after_idle_connections(connect: Connect, answers: Answers) -> None:
    """It sends PINGs, and cuts who does not answer in time: the next call works either way."""
    options = [
        ("grpc.keepalive_time_ms", 200),
        ("grpc.keepalive_timeout_ms", 200),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    with grpc_server(answers, options=options) as (_, port):
        transport = connect(f"127.0.0.1:{port}")
        for _ in range(2):
            assert data_of(transport.send("ModelInfer", body(data=b"x"), 60.0)) == b"x"
            time.sleep(1.0)
        assert data_of(transport.send("ModelInfer", body("slow", b"x", id="1"), 60.0)) == b"x"


def test_a_message_larger_than_the_server_takes(connect: Connect, answers: Answers) -> None:
    """The caller is told to send less, which no other try would mend."""
    options: Options = [("grpc.max_receive_message_length", 1000)]
    with grpc_server(answers, options=options) as (_, port):
        transport = connect(f"127.0.0.1:{port}")
        with pytest.raises(InvalidInput, match="larger than max"):
            transport.send("ModelInfer", body(data=bytes(2000)), 60.0)
        assert data_of(transport.send("ModelInfer", body(data=b"x"), 60.0)) == b"x"
