"""A project of networks that are none of tritonkit's, on a machine that believes to have a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.gpu.networks import encoder, resnet, write
from bench.gpu.sizes import SMALL
from tests.cli.running import tritonkit
from tests.fakecuda import FakeCuda
from tests.fakedriver import FakeDriver
from tests.fakegpu import GPU_BYTES, write_environment
from tritonkit.serve.install import VENV_VARIABLE

__all__ = ["GpuProject"]

SPECS = {
    "camera": "name: camera\nnetwork: {onnx: camera.onnx}\nserving: {max_batch_size: 8}\n",
    "letters": "name: letters\nnetwork:\n  onnx: letters.onnx\n"
    "  free_axes: {length: {min: 2, max: 32, pad: {input_ids: 0, attention_mask: 0}}}\nserving: {max_batch_size: 8}\n",
    "second": "name: second\nnetwork: {onnx: second.onnx}\n"
    "serving: {max_batch_size: 2, instance_group: [{gpus: [1]}]}\n",
}
"""Images of one size, texts of different lengths, and a network for a GPU that is not there."""


@dataclass(frozen=True)
class GpuProject:
    """The project, and the machine with a GPU.

    Args:
        root, repository: the project's folder, and what was built for target gpu.
        environment: the server environment.
        cuda, driver: the fakes.
        built: what the build printed.
    """

    root: Path
    repository: Path
    environment: Path
    cuda: FakeCuda
    driver: FakeDriver
    built: str = ""


@pytest.fixture(scope="module")
def project_for_gpu(
    compiled_fake_cuda: FakeCuda, fake_driver: FakeDriver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuProject]:
    """The project, made by `tritonkit new` and built by `tritonkit build --target gpu`; commands see the GPU."""
    folder = tmp_path_factory.mktemp("stranger")
    cuda = replace(compiled_fake_cuda.for_server(folder), memory_bytes=GPU_BYTES)
    write_environment(folder / "environment", cuda, fake_driver)
    root = folder / "project"
    root.mkdir()
    for name, network in (("camera", resnet), ("letters", encoder), ("second", resnet)):
        write(network("float32", SMALL), root / f"{name}.onnx")
    with pytest.MonkeyPatch.context() as patch:
        fake_driver.answer(patch, bytes=GPU_BYTES, free=GPU_BYTES)
        for variable, value in (cuda.variables | {VENV_VARIABLE: str(folder / "environment")}).items():
            patch.setenv(variable, value)
        for name, text in SPECS.items():
            made = tritonkit("new", name, "--onnx", f"{name}.onnx", cwd=root)
            assert made.returncode == 0, made.stderr
            (root / "models" / name / "model.yaml").write_text(text)
        built = tritonkit("build", "--target", "gpu", cwd=root)
        assert built.returncode == 0, built.stderr
        repository = root / "model_repository_gpu"
        yield GpuProject(root, repository, folder / "environment", cuda, fake_driver, built.stdout + built.stderr)
