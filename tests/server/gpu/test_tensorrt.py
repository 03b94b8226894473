"""From a spec with the TensorRT accelerator to a server, on a GPU and a TensorRT that are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.gpu.networks import resnet, write
from bench.gpu.sizes import SMALL
from tests.cli.running import tritonkit
from tests.fakecuda import FakeCuda
from tests.fakedriver import FakeDriver, WriteTensorRT, write_tensorrt_provider
from tritonkit.client import Client
from tritonkit.serve import serve
from tritonkit.serve.install import VENV_VARIABLE

SPEC = """name: camera
network: {onnx: camera.onnx}
serving:
  max_batch_size: 8
  optimization: {gpu_execution_accelerator: [{name: tensorrt}]}
"""
FREE = {"grpc_port": 0, "metrics_port": 0}
VERSION = 101601


@pytest.fixture
def root(gpu_machine: FakeCuda, tmp_path: Path) -> Path:
    """A project whose network TensorRT is to run."""
    assert gpu_machine.devices == 1
    folder = tmp_path / "project"
    (folder / "models" / "camera").mkdir(parents=True)
    (folder / "models" / "camera" / "model.yaml").write_text(SPEC)
    write(resnet("float32", SMALL), folder / "models" / "camera" / "camera.onnx")
    return folder


def build(root: Path) -> str:
    """What a build for a GPU prints."""
    built = tritonkit("build", "--target", "gpu", cwd=root)
    assert built.returncode == 0, built.stderr
    return built.stdout + built.stderr


def test_a_build_fills_the_folder_that_the_server_reads(
    root: Path,
    gpu_machine: FakeCuda,
    fake_driver: FakeDriver,
    write_tensorrt: WriteTensorRT,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The engine is built once, the first start finds it, and an unchanged build starts nothing."""
    environment = tmp_path / "gpu_environment"
    (packages,) = environment.glob("lib/python3.*/site-packages")
    write_tensorrt_provider(packages, fake_driver, write_tensorrt, VERSION)
    monkeypatch.setenv(VENV_VARIABLE, str(environment))
    folder = root / ".tritonkit" / "cache" / "tensorrt" / "camera"
    assert f"TensorRT's engines of camera are in {folder}: a start took" in build(root)
    assert gpu_machine.counters()["engines_built"] == 1
    assert "TensorRT's engines" not in build(root)
    with serve(root / "model_repository_gpu", root=root, **FREE) as endpoint:
        assert endpoint.models == ("camera",)
        with Client(endpoint.grpc) as client:
            pixels = np.zeros((3, 3, SMALL.pixels, SMALL.pixels), np.uint8)
            assert len(client.model("camera").predict(pixels=pixels)["logits"]) == 3
    counters = gpu_machine.counters()
    assert (counters["engines_built"], counters["engines_read"]) == (1, 1)
    assert counters["captures"] == 0


def test_a_machine_without_tensorrt_says_why_no_engine_was_built(root: Path) -> None:
    """The model is published; the note has the reason and the command."""
    printed = build(root)
    assert "TensorRT's engines of camera could not be built now: model camera" in printed
    assert "pip install 'tensorrt-cu13-libs>=10.13,<11'" in printed
    assert (root / "model_repository_gpu" / "camera" / "config.pbtxt").is_file()
