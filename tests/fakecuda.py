"""A GPU that is not there, for tritonserver and our native backends.

`tests/native/fake_cuda/` stands for CUDA's runtime, which tritonserver preloads, and for ONNX Runtime's CUDA provider,
by a library around the real one. So a real server takes the machine for one with GPUs. Memory of a device cannot be
read or written except by the fake's own copies, and what it holds is counted.

The fixture `fake_cuda` compiles it, where there is a C compiler.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.parts import PROJECT, SERVER, program

__all__ = ["FakeCuda"]

COMPILERS = ("cc", "gcc", "clang")
SOURCES = PROJECT / "tests" / "native" / "fake_cuda"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
SHARED = ["-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
LIBRARIES = {"libcudart_fake.so": ("cudart.c", "memory.c"), "libonnxruntime.so": ("onnxruntime.c",)}
COUNTERS = (
    "allocated_bytes",
    "allocations",
    "peak_bytes",
    "refused_allocations",
    "pinned_bytes",
    "streams",
    "sessions",
    "to_device",
    "to_host",
    "on_device",
    "runs",
    "captures",
    "replays",
    "broken_captures",
    "faults",
    "spread_runs",
    "holds",
    "engines_built",
    "engines_read",
)
"""The fields of `struct counters` in memory.h, in order."""


@dataclass(frozen=True)
class FakeCuda:
    """The compiled libraries, and the GPUs that a server is to see; `dataclasses.replace` gives others.

    Attributes:
        runtime: the library to preload.
        engine: the library that stands for ONNX Runtime with its CUDA provider.
        real_engine: ONNX Runtime's own, which computes.
        counters_file: the file that shows the counters of the server, also while it runs.
        devices: the number of GPUs.
        memory_bytes: memory of each.
        provider: "none" for an ONNX Runtime without the CUDA provider; "missing" if the provider lacks a library.
        lacks: an operator that the CUDA provider does not have.
        waits: an operator that cannot be captured, because it waits for its stream.
        copies: an operator whose input is copied to the CPU.
        on_host: a tensor that the CPU reads or writes.
        splits: an operator that TensorRT does not run, between others that it does.
        providers_file: a file for the providers and options of sessions on TensorRT.
    """

    runtime: Path
    engine: Path
    real_engine: Path
    counters_file: Path
    devices: int = 1
    memory_bytes: int = 1 << 30
    provider: str = ""
    lacks: str = ""
    waits: str = ""
    copies: str = ""
    on_host: str = ""
    splits: str = ""
    providers_file: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of a server."""
        return {
            "LD_PRELOAD": str(self.runtime),
            "FAKE_CUDA_COUNTERS": str(self.counters_file),
            "FAKE_CUDA_ENGINE": str(self.real_engine),
            "FAKE_CUDA_DEVICES": str(self.devices),
            "FAKE_CUDA_BYTES": str(self.memory_bytes),
            "FAKE_CUDA_PROVIDER": self.provider,
            "FAKE_CUDA_LACKS": self.lacks,
            "FAKE_CUDA_WAITS": self.waits,
            "FAKE_CUDA_COPIES": self.copies,
            "FAKE_CUDA_ON_HOST": self.on_host,
            "FAKE_CUDA_SPLITS": self.splits,
            "FAKE_CUDA_PROVIDERS": self.providers_file,
        }

    def counters(self) -> Mapping[str, int]:
        """The present counters; all are 0 before a server starts."""
        size = 8 * len(COUNTERS)
        with self.counters_file.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            return dict(zip(COUNTERS, struct.unpack(f"{len(COUNTERS)}q", content), strict=True))

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """A time in which no run on a GPU ends, but for graphs."""
        self._set("holds", 1)
        try:
            yield
        finally:
            self._set("holds", 0)

    def _set(self, counter: str, value: int) -> None:
        with self.counters_file.open("r+b") as file:
            file.seek(8 * COUNTERS.index(counter))
            file.write(struct.pack("q", value))

    def left_over(self) -> dict[str, int]:
        """The counters of what a server that has ended did not give back."""
        counters = self.counters()
        return {
            name: counters[name] for name in ("allocations", "pinned_bytes", "streams", "sessions") if counters[name]
        }

    def for_server(self, folder: Path) -> FakeCuda:
        """The same with counters of its own in a folder."""
        numbers = (folder / f"cuda_counters_{number}" for number in itertools.count())
        file = next(file for file in numbers if not file.exists())
        file.write_bytes(bytes(8 * len(COUNTERS)))
        return replace(self, counters_file=file)


def compile_fake(folder: Path) -> FakeCuda:
    """Compile the libraries in a folder."""
    compiler = next(path for path in map(program, COMPILERS) if path)
    for name, sources in LIBRARIES.items():
        files = [str(SOURCES / source) for source in sources]
        subprocess.run([compiler, *FLAGS, *SHARED, "-o", str(folder / name), *files, "-ldl"], check=True)
    real = next(SERVER.glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    return FakeCuda(folder / "libcudart_fake.so", folder / "libonnxruntime.so", real, folder / "counters")


@pytest.fixture(scope="session")
def compiled_fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """The libraries, compiled once."""
    return compile_fake(tmp_path_factory.mktemp("fake_cuda"))


@pytest.fixture
def fake_cuda(compiled_fake_cuda: FakeCuda, tmp_path: Path) -> FakeCuda:
    """The fake with counters for one test."""
    return compiled_fake_cuda.for_server(tmp_path)
