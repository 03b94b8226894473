"""A machine with a GPU that is not there, as a user of the command line has it: driver, server environment and CUDA.

The server environment is the real one, in which CUDA's libraries, ONNX Runtime with its CUDA provider, and the Python
that judges variants are those of `tests.fakedriver`, `tests.fakecuda` and `tests.repository.optimize.fake_cuda`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda
from tests.fakedriver import FakeDriver, write_cuda_packages
from tests.parts import SERVER
from tests.repository.optimize.fake_cuda import write_python
from tritonkit.serve.install import VENV_VARIABLE

__all__ = ["GPU_BYTES", "write_environment"]

GPU_BYTES = 3 << 30
"""Memory of the GPU."""


def write_environment(folder: Path, cuda: FakeCuda, driver: FakeDriver) -> None:
    """Write the environment for GPUs: links to the real one's packages, but for what is fake."""
    packages = next(SERVER.glob("lib/python3.*/site-packages"))
    own = folder / packages.relative_to(SERVER)
    _link(packages, own, but="onnxruntime")
    _link(packages / "onnxruntime", own / "onnxruntime", but="capi")
    engine = cuda.real_engine.name
    _link(cuda.real_engine.parent, own / "onnxruntime" / "capi", but=engine)
    (own / "onnxruntime" / "capi" / "libonnxruntime_providers_shared.so").unlink(missing_ok=True)
    (own / "onnxruntime" / "capi" / engine).symlink_to(cuda.engine)
    write_cuda_packages(own, driver)
    shutil.copytree(SERVER / "lib" / "tritonkit", folder / "lib" / "tritonkit")
    shutil.copytree(SERVER / "bin", folder / "bin", symlinks=True)
    shutil.copy(SERVER / "pyvenv.cfg", folder)
    write_python(folder, folder / "bin" / "python3")


def _link(source: Path, folder: Path, but: str) -> None:
    """Make a folder with links to all that another one holds, but for one name."""
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if path.name != but:
            (folder / path.name).symlink_to(path)


@pytest.fixture
def gpu_machine(
    fake_cuda: FakeCuda, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> FakeCuda:
    """Let processes that a test starts, and servers of this one, see a machine with a GPU."""
    folder = tmp_path / "gpu_environment"
    write_environment(folder, fake_cuda, fake_driver)
    machine = replace(fake_cuda, memory_bytes=GPU_BYTES)
    fake_driver.answer(monkeypatch, bytes=GPU_BYTES, free=GPU_BYTES)
    monkeypatch.setenv(VENV_VARIABLE, str(folder))
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    return machine
