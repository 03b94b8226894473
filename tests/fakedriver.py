"""An NVIDIA driver that is not there, for what asks it before a server starts: `doctor` and `serve`.

`tests/fakecuda.py` has the GPUs that a server sees then.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parts import PROJECT, program

__all__ = ["Compile", "FakeDriver", "WriteDriver", "WriteTensorRT", "write_cuda_packages", "write_tensorrt_provider"]

SOURCE = PROJECT / "tests" / "native" / "fake_driver" / "driver.c"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
PACKAGES = {
    "cu13": ("cudart.so.13", "nvrtc.so.13", "cublasLt.so.13", "cublas.so.13", "curand.so.10", "cufft.so.12"),
    "cudnn": ("cudnn.so.9",),
}
"""Folder below `nvidia` -> the libraries that the environment for GPUs has there."""


@dataclass(frozen=True)
class FakeDriver:
    """The compiled library, and the folder in which it has the names of the driver's two."""

    library: Path
    folder: Path

    @property
    def shared(self) -> Path:
        """ONNX Runtime's library for its providers, whose host is there once ONNX Runtime has set it."""
        return self.library.with_name("libshared.so")

    @property
    def provider(self) -> Path:
        """A provider, which asks the host while it is opened: nothing but ONNX Runtime can open one."""
        return self.library.with_name("libprovider.so")

    def answer(self, monkeypatch: pytest.MonkeyPatch, **facts: str | int) -> None:
        """Let this process's children find the driver; `devices=2` and so on say what it answers (driver.c)."""
        monkeypatch.setenv("LD_LIBRARY_PATH", str(self.folder), prepend=":")
        for name, value in facts.items():
            monkeypatch.setenv(f"FAKE_DRIVER_{name.upper()}", str(value))


def write_cuda_packages(packages: Path, driver: FakeDriver) -> None:
    """Write the files that only the environment for GPUs has: CUDA's libraries, and ONNX Runtime's provider."""
    names = [f"nvidia/{folder}/lib/lib{name}" for folder, names in PACKAGES.items() for name in names]
    files = dict.fromkeys(names, driver.library)
    files |= {f"onnxruntime/capi/libonnxruntime_providers_{part}.so": file for part, file in _parts(driver).items()}
    for name, file in files.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, packages / name)


def _parts(driver: FakeDriver) -> dict[str, Path]:
    return {"shared": driver.shared, "cuda": driver.provider}


def write_tensorrt_provider(packages: Path, driver: FakeDriver, write: WriteTensorRT, version: int) -> None:
    """Write ONNX Runtime's TensorRT provider, and TensorRT's own package."""
    shutil.copyfile(driver.provider, packages / "onnxruntime" / "capi" / "libonnxruntime_providers_tensorrt.so")
    (packages / "tensorrt_libs").mkdir()
    write(packages / "tensorrt_libs", version)


Compile = Callable[..., None]
"""Compiles a library from C: its path, the source, then flags."""
WriteTensorRT = Callable[..., None]
"""Compiles TensorRT's libraries of a major version into a folder; they say a version, such as 100500 for 10.5.0."""
WriteDriver = Callable[..., FakeDriver]
"""Compiles the driver into a folder, with flags for its functions."""


# What needs the compiler is a fixture, so that `tests/parts.py` knows each test that needs it.
@pytest.fixture(scope="session")
def compile_c() -> Compile:
    """The C compiler of this machine."""
    compiler = next(path for path in map(program, COMPILERS) if path)

    def write(library: Path, source: Path, *flags: str) -> None:
        subprocess.run([compiler, *FLAGS, *flags, "-o", str(library), str(source)], check=True)

    return write


@pytest.fixture(scope="session")
def write_tensorrt(compile_c: Compile) -> WriteTensorRT:
    """TensorRT's library that says its version, which is all that it has."""

    def write(folder: Path, number: int, more: str = "", major: int = 10) -> None:
        source = folder / "nvinfer.c"
        source.write_text(f"#include <unistd.h>\n{more}\nint getInferLibVersion(void) {{ return {number}; }}\n")
        for name in ("nvinfer", "nvonnxparser"):
            file = f"lib{name}.so.{major}"
            compile_c(folder / file, source, f"-Wl,-soname,{file}")

    return write


@pytest.fixture(scope="session")
def write_driver(compile_c: Compile) -> WriteDriver:
    """A driver with functions of its own."""

    def write(folder: Path, *flags: str) -> FakeDriver:
        library = folder / "libdriver.so"
        compile_c(library, SOURCE, "-Wl,-soname,libcudart.so.13", *flags)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (folder / "lib").mkdir(exist_ok=True)
            shutil.copyfile(library, folder / "lib" / name)
        driver = FakeDriver(library, folder / "lib")
        ask = "; __attribute__((constructor)) static void ask(void) { *(volatile char*)HOST(); }"
        for file, text in ((driver.shared, "{ return 0; }"), (driver.provider, ask)):
            source = file.with_suffix(".c")
            source.write_text(f"#define HOST Provider_GetHost\nvoid* HOST(void) {text}\n")
            compile_c(file, source, "-Wl,-z,now")
        return driver

    return write


@pytest.fixture(scope="session")
def fake_driver(write_driver: WriteDriver, tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """The driver, compiled once."""
    return write_driver(tmp_path_factory.mktemp("fake_driver"))
