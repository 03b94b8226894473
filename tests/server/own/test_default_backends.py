"""The backends that a server chooses by itself, and its restart after an engine's crash."""

from __future__ import annotations

import os
import shutil
import signal
import struct
from pathlib import Path

import pytest
from onnx import TensorProto

from tests.parts import SERVER
from tests.server.onnx_models import identity, through
from tests.server.own.test_serve import Events, ask
from tests.waiting import eventually
from tritonkit.errors import ServerNotFound
from tritonkit.serve import Server
from tritonkit.serve.core.supervisor import children
from tritonkit.serve.install import VENV_VARIABLE

ANSWER = (0.0, 1.0, 2.0, 3.0)
ENGINES = ("onnxruntime", "openvino")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One network for ONNX Runtime: y = x, four numbers."""
    folder = tmp_path / "model_repository"
    config = "max_batch_size: 8\n" + through("FP32 [4]")
    identity(folder / "echo", TensorProto.FLOAT, ["n", 4], config)
    return folder


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server environment again, without anything compiled; `serve` takes it."""
    folder = tmp_path / "environment"
    packages = next(SERVER.glob("lib/python3.*"))
    (folder / "lib" / "tritonkit").mkdir(parents=True)
    (folder / "lib" / packages.name).symlink_to(packages.resolve())
    (folder / "bin").symlink_to((SERVER / "bin").resolve())
    shutil.copyfile(SERVER / "pyvenv.cfg", folder / "pyvenv.cfg")
    monkeypatch.setenv(VENV_VARIABLE, str(folder))
    return folder


def server(repository: Path, events: Events, **settings: object) -> Server:
    """On free ports; what it says goes to `events`."""
    return Server(
        repository,
        grpc_port=0,
        metrics_port=0,
        on_event=events,
        finalize_timeout_s=0,
        **settings,  # type: ignore[arg-type]
    )


def mapped(pid: int) -> str:
    """The files that a process has loaded."""
    return Path(f"/proc/{pid}/maps").read_text()


def test_native_backends_serve_by_default(repository: Path, environment: Path, native: Path) -> None:
    """In tritonserver's own process: no stub, no shared memory, and nothing said of stand-ins. When that process
    is killed as a fault in an engine would, it is started again, native as before."""
    for name in ENGINES:
        shutil.copy(native / f"libtriton_{name}.so", environment / "lib" / "tritonkit")
    events = Events()
    with server(repository, events) as endpoint:
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == ANSWER
        assert not children(endpoint.pid)
        assert "/libtriton_onnxruntime.so" in mapped(endpoint.pid)
        assert not events.of("stand_in")
        os.kill(endpoint.pid, signal.SIGSEGV)
        eventually(lambda: events.of("server_back"))
        assert "SIGSEGV" in events.of("server_died")[0].message
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == ANSWER
    assert "native backends: onnxruntime, openvino" in events.of("preparing")[0].message
    assert "scheduling batch" in events.of("starting")[0].message
    assert "Triton's own defaults" in events.of("starting")[0].message


@pytest.mark.usefixtures("environment")
def test_stand_ins_serve_where_nothing_is_compiled(repository: Path) -> None:
    """One event says which and what to do, of those that a model names; `python` asks for them without a word,
    `native` for nothing else."""
    events = Events()
    with server(repository, events) as endpoint:
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == ANSWER
        assert children(endpoint.pid)
        assert "/libtriton_onnxruntime.so" not in mapped(endpoint.pid)
    (said,) = events.of("stand_in")
    assert "(onnxruntime: it is not compiled)" in said.message
    assert "tritonkit doctor" in said.message
    quiet = Events()
    with server(repository, quiet, backend="python") as endpoint:
        assert children(endpoint.pid)
    assert not quiet.of("stand_in")
    with pytest.raises(ServerNotFound, match="native backend onnxruntime"):
        server(repository, Events(), backend="native").start()
