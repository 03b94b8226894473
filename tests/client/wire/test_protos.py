"""Triton's message classes, without gRPC's library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tritonkit.client.wire import protos

WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None
from pathlib import Path
import numpy as np
from tritonkit.client import Client
from tritonkit.repository.render.message import parse_text
from tritonkit.serve.rpc import NotAnswered, connect
from tritonkit.testing import FakeModel, MemoryTransport

config = parse_text('name: "net" input { name: "x" data_type: TYPE_FP32 dims: [2] }', "here")
assert config.input[0].name == "x"
with connect("127.0.0.1:1") as service:
    assert not service.live(0.5)
double = FakeModel({"x": ("FP32", [2])}, {"y": ("FP32", [2])}, lambda given: {"y": given["x"] * 2})
with Client(transport=MemoryTransport({"double": double})) as client:
    print(client.model("double").predict(x=[1.0, 2.0])["y"].tolist(), client.config("double").name)
print([name for name in sys.modules if name.startswith("tritonclient")])
"""

BESIDE_TRITONCLIENT = """
from tritonkit.client.wire.protos import schema
from tritonclient.grpc import service_pb2
ours = schema().ModelReadyRequest(name="digits")
theirs = service_pb2.ModelReadyRequest.FromString(ours.SerializeToString())
print(theirs.name, type(ours) is type(theirs))
"""


def run(program: str) -> str:
    """A program's output in its own interpreter, with warnings as errors."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rendering_serving_and_calling_need_no_grpc() -> None:
    """With `grpc` blocked from import, configurations are read, servers asked and models called."""
    assert run(WITHOUT_GRPC) == "[[2.0, 4.0]] double\n[]\n"


def test_tritonclient_may_be_imported_too() -> None:
    """Its classes and ours lie in different pools: both work in one process and read each other's bytes."""
    assert run(BESIDE_TRITONCLIENT) == "digits False\n"


def test_every_message_has_one_class() -> None:
    """Two calls give the same classes, so values of one are values of the other."""
    assert protos.schema().ModelConfig is protos.schema().ModelConfig


def test_a_datatype_has_its_name() -> None:
    """Numbers of Triton's enum are named; others are refused."""
    assert protos.data_type_name(13) == "TYPE_STRING"
    with pytest.raises(ValueError, match="99"):
        protos.data_type_name(99)


@pytest.mark.parametrize("content", [None, "", "DESCRIPTOR = 1", "not Python("])
def test_a_package_without_a_schema_is_named(content: str | None, tmp_path: Path) -> None:
    """A tritonclient without descriptors is a typed error that says what to install."""
    folder = tmp_path / "tritonclient" / "grpc"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name in ("model_config_pb2.py", "service_pb2.py"):
        if content is not None:
            (folder / name).write_text(content)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from tritonkit.errors import UsageError
from tritonkit.client.wire.protos import schema
try:
    schema()
except UsageError as error:
    print(error.todo)
"""
    assert "pip install" in run(program)
