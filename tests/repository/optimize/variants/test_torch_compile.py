"""Packages of AOTInductor: what is refused, and what is compiled for a GPU. `tests/variants` compiles one for the CPU.

`tests/gpu/test_pytorch_stubs.py` compiles one on a GPU.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
from torch.export import passes
from torch.utils import cpp_extension

from tests.conftest import WriteModel
from tests.fakedriver import COMPILERS, FakeDriver
from tests.parts import program
from tests.repository.optimize.variants.test_torch_export import refused, spec_of
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.results import wanted_variants
from tritonkit.repository.optimize.variants import FORMS, torch_compile

NOTES = {"AOTI_DEVICE_KEY": "cuda", "AOTI_COMPUTE_CAPABILITY": "90"}


def test_without_a_compiler_the_package_is_refused(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch-compile needs g++ or what CXX names, and says how to get it."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    problem = refused(spec_of(write_model), root, "torch-compile")
    assert "'no-such-compiler'" in problem.found
    assert "apt-get install g++" in problem.todo


def test_what_the_compiler_says_is_told(write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's message begins with pages of the command line; the reason is below."""

    def fail(*_: object, **__: object) -> None:
        message = "a.h:1: fatal error: when writing output to a.i: No space left on device"
        raise RuntimeError(f"CppCompileError: C++ compile error\n\nCommand:\ng++ a.h\n\nOutput:\n{message}")

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fail)
    problem = refused(spec_of(write_model), root, "torch-compile")
    assert problem.found.startswith("the C++ compiler failed: a.h:1: fatal error: ")
    assert problem.found.endswith("No space left on device")
    assert "TMPDIR" in problem.todo


def test_without_a_gpu_a_package_for_one_is_refused(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other variants of the build are made; the message names the form that needs no GPU to build."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    results = evaluate(spec_of(write_model), ["torch-compile-cuda", "onnx-fp32"], BuildCache(root / "cache"))
    assert [result.problem is None for result in results] == [False, True]
    problem = results[0].problem
    assert problem is not None
    assert problem.where.endswith("variant torch-compile-cuda")
    assert problem.found.startswith(f"PyTorch {torch.__version__}")
    assert problem.todo == "build on such a machine; or choose torch-export, which any GPU runs"


def test_a_driver_that_hangs_does_not_hold_up_a_build(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch, which would wait for it without end, does not ask it."""
    monkeypatch.setattr(torch_compile, "why_no_gpu", lambda: "the NVIDIA driver hangs: no answer within 60 s")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("PyTorch asked the driver"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    problem = refused(spec_of(write_model), root, "torch-compile-cuda")
    assert problem.found.endswith("(CUDA 13.0) finds no GPU: the NVIDIA driver hangs: no answer within 60 s")


def test_a_package_for_a_gpu_is_of_target_gpu_alone(write_model: WriteModel) -> None:
    """`all` leaves it out of other targets."""
    spec = spec_of(write_model)
    with_it = [
        t for t in ("cpu", "gpu", "nvidia") if "torch-compile-cuda" in map(str, wanted_variants(spec, ["all"], t))
    ]
    assert with_it == ["gpu"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """A GPU as far as the build asks for one; a list of what was compiled for it."""
    compiled: list[Any] = []

    def pack(program: Any, *, package_path: io.BytesIO, inductor_configs: Any) -> None:
        compiled.extend((program, inductor_configs))
        with zipfile.ZipFile(package_path, "w") as archive:
            archive.writestr("model/archive_format", "pt2")
            archive.writestr("model/data/aotinductor/model/m.wrapper_metadata.json", json.dumps(NOTES))

    monkeypatch.setattr(torch_compile, "why_no_gpu", str)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", pack)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(write_headers(tmp_path / "cuda", *torch_compile._HEADERS)))
    monkeypatch.setenv("CXX", sys.executable)
    return compiled


def test_the_program_is_compiled_on_the_gpu(
    write_model: WriteModel, root: Path, card: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensors are moved there first, and the note has the card. `meta` stands for the GPU that is not here."""
    move = passes.move_to_device_pass
    places: list[str] = []

    def record(program: Any, place: str) -> Any:
        places.append(place)
        return move(program, "meta")

    monkeypatch.setattr(passes, "move_to_device_pass", record)
    folder = root / "folder"
    folder.mkdir()
    (note,) = FORMS["torch-compile-cuda"].make(job_of(spec_of(write_model), BuildCache(root / "cache")), folder)
    assert places == ["cuda"]
    program, settings = card
    assert {tensor.device.type for tensor in program.state_dict.values()} == {"meta"}
    assert settings == {"freezing": True}
    assert {"model.pt2", "model.py", "tensors.json"} <= {file.name for file in folder.iterdir()}
    assert note == (
        f"compiled by PyTorch {torch.__version__} for NVIDIA H100 80GB HBM3, compute capability 9.0: it runs under that"
        " version, on GPUs of that generation"
    )


LINKS = """import os, subprocess, sys
from tritonkit.repository.optimize.variants.torch_compile import linkable_driver

before = os.environ.get("LIBRARY_PATH")
with linkable_driver():
    folder = os.environ["LIBRARY_PATH"].partition(":")[0]
    linked = subprocess.run([sys.argv[1], "program.c", "-lcuda", "-o", "program"])
assert os.environ.get("LIBRARY_PATH") == before
assert not os.path.exists(folder)
sys.exit(linked.returncode)
"""


@pytest.mark.parametrize("given", [None, "/nowhere"])
def test_a_driver_without_a_link_for_compilers_is_linked(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    """Only libcuda.so.1 is there, as in a container; a program that calls the driver is linked against that."""
    fake_driver.answer(monkeypatch)
    if given is None:
        monkeypatch.delenv("LIBRARY_PATH", raising=False)
    else:
        monkeypatch.setenv("LIBRARY_PATH", given)
    (tmp_path / "program.c").write_text("int cuInit(unsigned);\nint main(void) { return cuInit(0); }\n")
    compiler = next(path for path in map(program, COMPILERS) if path)
    subprocess.run([sys.executable, "-c", LINKS, compiler], cwd=tmp_path, check=True)
    (tmp_path / "libcudart.so.13").symlink_to(fake_driver.library)  # the name that the fake has in itself
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert subprocess.run([tmp_path / "program"]).returncode == 0


def test_a_library_that_is_not_found_is_named(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linker's line, not the compiler's about the linker."""

    def fail(*_: object, **__: object) -> None:
        lines = "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status"
        raise RuntimeError(f"CppCompileError: C++ compile error\n\nCommand:\ng++ a.o\n\nOutput:\n{lines}")

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fail)
    problem = refused(spec_of(write_model), root, "torch-compile")
    assert problem.found == "the C++ compiler failed: /usr/bin/ld: cannot find -lcuda: No such file or directory"


def write_headers(folder: Path, *names: str) -> Path:
    """A folder of CUDA with some of its headers."""
    for name in names:
        file = folder / "include" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder


def test_headers_come_from_the_wheels(
    write_model: WriteModel, root: Path, card: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's wheels stand in for a toolkit that is not there or not whole."""
    toolkit = write_headers(tmp_path / "toolkit", "cuda_runtime_api.h")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(toolkit))
    wheels = write_headers(tmp_path / "wheels" / "nvidia_some" / "cu13", *torch_compile._HEADERS)
    monkeypatch.syspath_prepend(tmp_path / "wheels")
    monkeypatch.setattr(torch_compile, "_WHEELS", "nvidia_some.cu13")
    torch_compile._find_headers(torch, spec_of(write_model))
    assert str(wheels) == cpp_extension.CUDA_HOME


def test_missing_headers_are_named(
    write_model: WriteModel, root: Path, card: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the packages that bring them, and the details what is missing where."""
    toolkit = write_headers(tmp_path / "toolkit", "cuda_runtime_api.h")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(toolkit))
    monkeypatch.setattr(torch_compile, "_WHEELS", "nvidia_none.cu13")
    problem = refused(spec_of(write_model), root, "torch-compile-cuda")
    assert problem.found.startswith("there are no headers of CUDA")
    assert "nvidia-cuda-crt" in problem.todo
    assert problem.details == f"{toolkit}/include lacks crt/host_defines.h, nv/target"
