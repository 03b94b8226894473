"""`torch-compile` and `torch-compile-cuda`: compiled ahead of time by AOTInductor, for a CPU or a GPU.

A package is bound to the version of torch and to the processor or the kind of GPU that it was made with. A model.py
next to it serves it under Triton's python backend, because the native pytorch backend does not batch such packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.gpu import why_no_gpu
from tritonkit.repository.optimize.variants.torch_export import (
    check_dtypes,
    copy_server,
    exported_program,
    write_tensors,
)

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["PACKAGE", "linkable_driver", "make_compiled", "make_compiled_cuda", "package_notes"]

PACKAGE = "model.pt2"
_CPU = {
    # Weights are constants: normalization folds into them, and they are packed once.
    "freezing": True,
    # The server sets the threads, not the machine that compiled.
    "cpp.dynamic_threads": True,
    # Names for the profiler; without one running they cost nothing that could be measured.
    "cpp.enable_kernel_profile": True,
}
_CUDA = {"freezing": True}
_HEADERS = {
    "cuda_runtime_api.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "nv/target": "nvidia-cuda-cccl",
}
"""Headers that a compiled package includes -> the wheels that have them; PyTorch requires the first alone."""
_LIBRARY_PATH = "LIBRARY_PATH"
"""Variable with folders in which compilers look for libraries to link."""
_WHEELS = "nvidia.cu13"
"""The Python package into which CUDA's wheels put headers and libraries."""


def make_compiled(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.pt2 for this machine's processor, and the Python that serves it."""
    torch, spec = need("torch", "build"), job.spec
    check_dtypes(job)
    _check_compiler(spec, "torch-compile")
    notes = _write_package(torch, job, folder, exported_program(torch, job), _CPU)
    return (
        f"compiled by PyTorch {torch.__version__} for {notes.get('AOTI_CPU_ISA', 'this processor')}:"
        " it runs under that version, on such processors",
    )


def make_compiled_cuda(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.pt2 for this machine's GPU, and the Python that serves it; BuildError without a GPU."""
    torch, spec = need("torch", "build"), job.spec
    check_dtypes(job)
    _check_gpu(torch, spec)
    _check_compiler(spec, "torch-compile-cuda")
    _find_headers(torch, spec)
    program = exported_program(torch, job)
    move = need("torch.export.passes", "build").move_to_device_pass
    with linkable_driver():
        notes = _write_package(torch, job, folder, move(program, "cuda"), _CUDA)
    capability = notes.get("AOTI_COMPUTE_CAPABILITY", "")
    return (
        f"compiled by PyTorch {torch.__version__} for {torch.cuda.get_device_name()}, compute capability"
        f" {int(capability) / 10 if capability.isdecimal() else capability}: it runs under that version, on GPUs of"
        " that generation",
    )


def package_notes(torch: Any, package: Path) -> dict[str, str]:
    """The notes about its machine that PyTorch puts into a package.

    torch._inductor.aoti_load_package reads them too, after tens of seconds: to warn of another processor it compiles a
    C++ program.
    """
    notes: dict[str, str] = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(str(package), "model")
    return notes


def _write_package(torch: Any, job: Job, folder: Path, program: Any, settings: dict[str, bool]) -> dict[str, str]:
    """Compile a program, and write the package next to the Python that serves it; return the package's notes."""
    job.say("compiling")
    content = io.BytesIO()
    with (
        quiet(),
        torch.no_grad(),
        _compiler_blamed(f"{job.spec.file} variant torch-compile{'' if settings is _CPU else '-cuda'}"),
    ):
        need("torch._inductor", "build").aoti_compile_and_package(
            program, package_path=content, inductor_configs=settings
        )
    # Written by Python, which raises OSError on a full disk: torch's own writer ends the process there.
    (folder / PACKAGE).write_bytes(content.getbuffer())
    write_tensors(job.spec, folder)
    copy_server("torch_compile", folder)
    return package_notes(torch, folder / PACKAGE)


def _check_gpu(torch: Any, spec: Spec) -> None:
    """Kernels are compiled, and tried at several sizes, on the GPU itself."""
    wrong = why_no_gpu()  # first: PyTorch waits without end for a driver that hangs
    if not wrong and torch.cuda.is_available():
        return
    cuda = torch.version.cuda
    finding = f"(CUDA {cuda}) finds no GPU{f': {wrong}' if wrong else ''}" if cuda else "has no CUDA"
    raise BuildError(
        f"{spec.file} variant torch-compile-cuda",
        found=f"PyTorch {torch.__version__} {finding}",
        wanted="a GPU like the server's, for which AOTInductor compiles, and a PyTorch with CUDA",
        todo="build on such a machine; or choose torch-export, which any GPU runs",
    )


def _check_compiler(spec: Spec, variant: str) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(
            f"{spec.file} variant {variant}",
            found=f"there is no C++ compiler {compiler!r}, which AOTInductor compiles with",
            todo="apt-get install g++ (Debian and Ubuntu), or name one with CXX",
        )


def _find_headers(torch: Any, spec: Spec) -> None:
    """Let PyTorch take CUDA's headers from its wheels where no toolkit is installed; nvcc is not needed."""
    extension = need("torch.utils.cpp_extension", "build")
    folders = [Path(folder) for folder in (extension.CUDA_HOME, *_wheel_folders()) if folder]
    missing = {folder: [name for name in _HEADERS if not (folder / "include" / name).is_file()] for folder in folders}
    whole = next((folder for folder in folders if not missing[folder]), None)
    if whole is None:
        details = "\n".join(f"{folder}/include lacks {', '.join(names)}" for folder, names in missing.items())
        packages = " ".join(f'"{package}=={torch.version.cuda}.*"' for package in dict.fromkeys(_HEADERS.values()))
        raise BuildError(
            f"{spec.file} variant torch-compile-cuda",
            found="there are no headers of CUDA, which AOTInductor compiles with, or not all of them",
            wanted=f"{', '.join(_HEADERS)} of CUDA {torch.version.cuda}",
            todo=f"pip install {packages}; or name a toolkit's folder with CUDA_HOME",
            details=details,
        )
    extension.CUDA_HOME = str(whole)


def _wheel_folders() -> list[str]:
    """The folders into which CUDA's wheels put include/."""
    try:
        package = importlib.util.find_spec(_WHEELS)
    except ModuleNotFoundError:  # not even the package around it
        return []
    return list(package.submodule_search_locations or ()) if package else []


@contextlib.contextmanager
def linkable_driver() -> Iterator[None]:
    """Let the linker find the driver's library, which PyTorch names by `-lcuda`.

    PyTorch adds CUDA's folder of stubs only for a toolkit that CUDA_HOME names, and a driver may come without the
    link `libcuda.so`: programs that run need `libcuda.so.1` alone.
    """
    library, before = _driver_library(), os.environ.get(_LIBRARY_PATH)
    if library is None:  # the linker says so
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tritonkit-link-") as folder:
        (Path(folder) / "libcuda.so").symlink_to(library)
        os.environ[_LIBRARY_PATH] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            if before is None:
                del os.environ[_LIBRARY_PATH]
            else:
                os.environ[_LIBRARY_PATH] = before


def _driver_library() -> Path | None:
    """The file of the driver's library, as the loader finds it."""
    try:
        ctypes.CDLL("libcuda.so.1")
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    files = (Path(line[line.index("/") :]) for line in mapped if "/" in line)
    return next((file for file in files if file.name.startswith("libcuda.so.")), None)


@contextlib.contextmanager
def _compiler_blamed(where: str) -> Iterator[None]:
    """Raise BuildError with the C++ compiler's message, which torch reports below its command line."""
    try:
        yield
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if " error: " in line or ": cannot find -l" in line]
        if not lines:
            raise
        raise BuildError(
            where,
            found=f"the C++ compiler failed: {lines[0]}",
            wanted="a C++20 compiler with the libraries that it links, and disk space for its files",
            todo="free space, set TMPDIR to a larger disk, or name another compiler with CXX",
            details="\n".join(lines[1:5]),
        ) from error
