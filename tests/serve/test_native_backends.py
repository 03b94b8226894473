"""Native backends of an environment, and whether each can be used with its engine."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, write_cuda_packages
from tests.native.guarded import library
from tests.parts import SERVER
from tritonkit.serve.core.native_backends import NativeBackend, backend_flags, find_native_backends, why_not


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with files where a backend, its engine and the server's libraries would be."""
    for name in (
        "lib/tritonkit/libtriton_onnxruntime.so",
        "lib/python3.12/site-packages/onnxruntime/capi/libonnxruntime.so.1.99",
        "libs/libtritonserver.so",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no library")
    return tmp_path


def test_a_library_that_does_not_load_is_not_used(environment: Path) -> None:
    """The loader's own words say why; Triton is told nothing of it. One that is not compiled is left out."""
    backends = find_native_backends(environment, environment / "libs")
    assert list(backends) == ["onnxruntime"]
    assert "libtritonserver.so" in backends["onnxruntime"].wrong
    assert backend_flags(backends.values()) == []


def test_it_is_tried_again_when_a_file_changes(environment: Path) -> None:
    """The note next to the library holds the result for these files; others are tried."""
    find_native_backends(environment, environment / "libs")
    note = environment / "lib/tritonkit/libtriton_onnxruntime.so.tried"
    record = json.loads(note.read_text())
    note.write_text(json.dumps({**record, "wrong": ""}))
    (backend,) = find_native_backends(environment, environment / "libs").values()
    assert backend.wrong == ""
    assert backend_flags([backend]) == [f"--backend-config=onnxruntime,library={backend.engine}"]
    engine = next(environment.glob("lib/python3.12/site-packages/onnxruntime/capi/*"))
    engine.write_bytes(b"another library")
    (backend,) = find_native_backends(environment, environment / "libs").values()
    assert backend.wrong
    note.write_text("{")
    (backend,) = find_native_backends(environment, environment / "libs").values()
    assert backend.wrong


def test_an_engine_that_is_not_installed_is_named(environment: Path) -> None:
    """A backend without its wheel cannot be used."""
    shutil.rmtree(environment / "lib" / "python3.12")
    (backend,) = find_native_backends(environment, environment / "libs").values()
    assert backend.wrong == "its engine is not installed"


def test_why_a_backend_is_not_native(tmp_path: Path) -> None:
    """The reason names missing and unusable backends among the requested ones."""
    good = NativeBackend("onnxruntime", tmp_path, tmp_path)
    bad = NativeBackend("openvino", tmp_path, tmp_path, "it is too old")
    steps = NativeBackend("python", tmp_path, tmp_path)
    backends = {"onnxruntime": good, "openvino": bad, "python": steps}
    assert why_not(backends) == "openvino: it is too old"
    assert why_not({"onnxruntime": good, "python": steps}) == "openvino: it is not compiled"
    assert why_not({}, {"onnxruntime", "pytorch"}) == "onnxruntime: it is not compiled"
    assert why_not({}, {"pytorch", "ensemble"}) == ""


@pytest.mark.needs("triton", "c++")
def test_an_engine_is_really_tried(project: Path, tmp_path: Path) -> None:
    """A network goes through the environment's own engines; a library that is not an engine is refused."""
    packages = next(SERVER.glob("lib/python3.*/site-packages"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / packages.parent.name).symlink_to(packages.parent)
    (tmp_path / "lib" / "tritonkit").mkdir()
    for name in ("onnxruntime", "openvino"):
        shutil.copy(library(project, name, tmp_path / "made"), tmp_path / "lib" / "tritonkit")
    backends = find_native_backends(tmp_path, packages / "nvidia_pytriton.libs")
    assert {name: one.wrong for name, one in backends.items()} == {"onnxruntime": "", "openvino": ""}
    (tmp_path / "lib" / packages.parent.name).unlink()
    engine = tmp_path / "lib/python3.12/site-packages/onnxruntime/capi/libonnxruntime.so.1"
    engine.parent.mkdir(parents=True)
    shutil.copy(library(project, "guard", tmp_path / "made"), engine)
    backends = find_native_backends(tmp_path, packages / "nvidia_pytriton.libs")
    assert "is no ONNX Runtime: it has no OrtGetApiBase" in backends["onnxruntime"].wrong


def test_cudas_libraries_are_opened_before_the_engine(
    environment: Path, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment for GPUs names them, for ONNX Runtime alone, in the order of their needs."""
    packages = environment / "lib" / "python3.12" / "site-packages"
    write_cuda_packages(packages, fake_driver)
    (backend,) = find_native_backends(environment, environment / "libs").values()
    names = [file.name for file in backend.first]
    assert names[:2] == ["libcudart.so.13", "libnvrtc.so.13"]
    flags = backend_flags([replace(backend, wrong="")])
    first = ":".join(map(str, backend.first))
    assert flags[1:] == [f"--backend-config=onnxruntime,load-first={first}"]


@pytest.mark.needs("cc")
def test_the_folders_of_a_driver_are_kept(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that only LD_LIBRARY_PATH of the environment names is found while a backend is tried."""
    server = environment / "libs" / "libtritonserver.so"
    compiler = next(path for path in map(shutil.which, ("cc", "gcc", "clang")) if path)
    words = [compiler, "-shared", "-fPIC", "-x", "c", "-"]
    (tmp_path / "driver").mkdir()
    subprocess.run([*words, "-o", tmp_path / "driver" / "libdriver_x.so"], input=b"int driver_x;", check=True)
    linked = ["-Wl,--no-as-needed", f"-L{tmp_path / 'driver'}", "-ldriver_x"]
    subprocess.run([*words, "-o", server, *linked], input=b"", check=True)
    backends = environment / "lib" / "tritonkit" / "libtriton_onnxruntime.so"
    (wrong,) = (one.wrong for one in find_native_backends(environment, environment / "libs").values())
    assert "libdriver_x.so" in wrong
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "driver"))
    backends.write_bytes(b"another library")
    (wrong,) = (one.wrong for one in find_native_backends(environment, environment / "libs").values())
    assert "libtriton_onnxruntime.so" in wrong
