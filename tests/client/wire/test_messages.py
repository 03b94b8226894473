"""Every call but inference."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tritonclient.grpc import service_pb2

from tritonkit.client.wire.messages import message, parse
from tritonkit.errors import InferenceError


def test_requests_are_protobuf_messages() -> None:
    """Fields arrive as they were given."""
    request = service_pb2.ModelMetadataRequest.FromString(message("ModelMetadata", name="m", version="2"))
    assert (request.name, request.version) == ("m", "2")
    request = service_pb2.SystemSharedMemoryRegisterRequest.FromString(
        message("SystemSharedMemoryRegister", name="r", key="/k", offset=0, byte_size=64)
    )
    assert request.byte_size == 64


def test_responses_are_read() -> None:
    """From bytes and from views of them."""
    body = service_pb2.ServerReadyResponse(ready=True).SerializeToString()
    assert parse("ServerReady", body).ready
    assert parse("ServerReady", memoryview(body)).ready
    assert not parse("ServerReady", b"").ready


def test_a_field_a_message_does_not_have_is_an_error() -> None:
    """A mistake of the program is told where it was made."""
    with pytest.raises(ValueError, match="nme"):
        message("ModelReady", nme="m")


def test_an_answer_that_is_no_message_is_an_error_of_ours() -> None:
    """Whatever stands in the bytes."""
    with pytest.raises(InferenceError, match="cannot be read"):
        parse("ModelConfig", b"\xff\xff")


def test_importing_the_codec_loads_no_grpc() -> None:
    """Triton's generated classes bring in gRPC: only a message loads them."""
    modules = ("answer", "messages", "request", "tensors", "transport")
    names = ", ".join(f"tritonkit.client.wire.{module}" for module in modules)
    program = f"import sys, tritonkit.client.testing, {names}; sys.exit('grpc' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60)
    assert done.returncode == 0
