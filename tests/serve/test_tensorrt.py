"""TensorRT for ONNX Runtime's provider: what a server needs for it, and models that a machine serves without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, WriteTensorRT, write_cuda_packages, write_tensorrt_provider
from tests.server.models import ModelText, write_repository
from tritonkit.serve.core.native_backends import NativeBackend, backend_flags
from tritonkit.serve.core.tensorrt import CACHE_VARIABLE, engines_folder, tensorrt_libraries, why_no_tensorrt
from tritonkit.serve.engines import engines_of, fill_engines, uses_tensorrt
from tritonkit.serve.gpus import doing_without
from tritonkit.serve.install import ServerInstallation
from tritonkit.serve.repository import read_models
from tritonkit.serve.selection import Selection, select

VERSION = 101601
TENSORS = """input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
"""
ON_CUDA = 'backend: "onnxruntime"\n' + TENSORS + "instance_group { kind: KIND_GPU }\n"
ACCELERATED = 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }\n'
ON_TENSORRT = ON_CUDA + ACCELERATED
ON_CPU = ON_TENSORRT.replace("KIND_GPU", "KIND_CPU")
PACKAGES = "lib/python3.12/site-packages"


@pytest.fixture
def environment(fake_driver: FakeDriver, write_tensorrt: WriteTensorRT, tmp_path: Path) -> Path:
    """A server environment with everything."""
    folder = tmp_path / "environment"
    write_cuda_packages(folder / PACKAGES, fake_driver)
    write_tensorrt_provider(folder / PACKAGES, fake_driver, write_tensorrt, VERSION)
    return folder


def library(environment: Path, name: str) -> Path:
    """One of TensorRT's libraries."""
    return environment / PACKAGES / "tensorrt_libs" / name


def served(environment: Path, folder: Path) -> Selection:
    """The models of each kind that are left."""
    texts = {"usual": ON_CUDA, "faster": ON_TENSORRT, "cpu": ON_CPU}
    repository = write_repository(folder / "models", {name: ModelText(text) for name, text in texts.items()})
    server = ServerInstallation(
        environment / "t", "1", environment, environment, native=False, python_bin=environment / "bin"
    )
    selection = select(read_models(repository), {}, None, ())
    return doing_without(server, selection, by_memory=False).selection


def test_libraries_come_in_the_order_of_their_needs(environment: Path, tmp_path: Path) -> None:
    """The parser needs TensorRT; without the packages the loader looks for them."""
    assert tensorrt_libraries(environment) == tuple(
        str(library(environment, f"lib{name}.so.10")) for name in ("nvinfer", "nvonnxparser")
    )
    assert tensorrt_libraries(tmp_path / "other") == ("libnvinfer.so.10", "libnvonnxparser.so.10")
    plugins = library(environment, "libnvinfer_plugin.so.10")
    plugins.write_bytes(b"")
    assert tensorrt_libraries(environment)[1] == str(plugins)


def test_a_model_that_tensorrt_can_run_is_served(
    environment: Path, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The provider is tried with its libraries."""
    fake_driver.answer(monkeypatch)
    assert why_no_tensorrt(environment) == ""
    assert list(served(environment, tmp_path).models) == ["cpu", "faster", "usual"]


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("tensorrt_libs/libnvinfer.so.10", "libnvinfer.so.10: cannot open shared object file"),
        ("tensorrt_libs/libnvonnxparser.so.10", "libnvonnxparser.so.10: cannot open shared object file"),
        (
            "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
            "the environment's ONNX Runtime has no libonnxruntime_providers_tensorrt.so",
        ),
    ],
)
def test_what_tensorrt_lacks_leaves_its_models_out(
    environment: Path,
    fake_driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    missing: str,
    reason: str,
) -> None:
    """One message has the library and the command that brings it; others are served."""
    fake_driver.answer(monkeypatch)
    (environment / PACKAGES / missing).unlink()
    selection = served(environment, tmp_path)
    assert list(selection.models) == ["cpu", "usual"]
    (error,) = selection.refused.values()
    assert error.where == "model faster"
    assert error.found.startswith("its accelerator is tensorrt, and ONNX Runtime's TensorRT provider cannot be used: ")
    assert reason in error.found
    assert f"{environment}/bin/python -m pip install 'tensorrt-cu13-libs>=10.13,<11'" in error.todo


def test_only_models_on_a_gpu_use_tensorrt(tmp_path: Path) -> None:
    """The accelerator of an instance on the CPU is not used."""
    texts = {"cpu": ON_CPU, "faster": ON_TENSORRT, "plan": ON_TENSORRT.replace("onnxruntime", "tensorrt")}
    repository = write_repository(tmp_path, {name: ModelText(text) for name, text in texts.items()})
    assert [model.name for model in read_models(repository) if uses_tensorrt(model)] == ["faster"]


def test_a_build_without_a_gpu_leaves_engines_to_the_first_start(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A note says why; models whose engines are there, and others, need none."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    fake_driver.answer(monkeypatch, devices=0)
    texts = {"usual": ON_CUDA, "faster": ON_TENSORRT}
    repository = write_repository(tmp_path / "models", {name: ModelText(text) for name, text in texts.items()})
    (note,) = fill_engines(tmp_path, repository, ())
    assert note.startswith("TensorRT's engines of faster are built at the first start, for seconds to minutes: CUDA")
    engine = engines_of(tmp_path) / "faster" / "0123" / "kept.engine"
    engine.parent.mkdir(parents=True)
    engine.touch()
    assert list(fill_engines(tmp_path, repository, ["usual"])) == []
    assert list(fill_engines(tmp_path, repository, ["faster"])) == [note]


def test_the_folder_for_engines_may_be_a_volume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The usual one is the project's; a container has none unless it is named."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert engines_of(tmp_path) == tmp_path / ".tritonkit" / "cache" / "tensorrt"
    assert engines_folder() is None
    monkeypatch.setenv(CACHE_VARIABLE, "/engines")
    assert engines_of(tmp_path) == engines_folder() == Path("/engines")


def test_the_server_gets_libraries_and_folder(tmp_path: Path) -> None:
    """Not where the engine has no provider for them."""
    backend = NativeBackend("onnxruntime", tmp_path, tmp_path / "engine", tensorrt=("libnvinfer.so.10", "/a/parser"))
    assert backend_flags([backend], Path("/engines"))[1:] == [
        "--backend-config=onnxruntime,tensorrt-libraries=libnvinfer.so.10:/a/parser",
        "--backend-config=onnxruntime,tensorrt-cache=/engines",
    ]
    without = NativeBackend("onnxruntime", tmp_path, tmp_path / "engine")
    assert len(backend_flags([without], Path("/engines"))) == 1
