"""CUDA's libraries that are there already: wheels without content in place of those that are missing, and links."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import cuda
from bench.gpu.places import Place, client_requirements
from bench.gpu.steps import StepError
from tests.conftest import PROJECT, pytest_plugins

REQUIREMENTS = """# CUDA
nvidia-pytriton==0.7.0
onnxruntime-gpu[cuda,cudnn]>=1.31.1,<2
nvidia-cublas~=13.1.1.0
nvidia-cudnn-cu13~=9.20.0
"""


def packages(folder: Path) -> Path:
    """An environment's folder of packages."""
    place = folder / "lib" / "python3.11" / "site-packages"
    place.mkdir(parents=True)
    return place


def with_cuda(folder: Path) -> Path:
    """Packages as PyTorch's have CUDA's libraries."""
    for library in ("cu13/lib/libcublasLt.so.13", "cudnn/lib/libcudnn.so.9"):
        file = folder / "nvidia" / library
        file.parent.mkdir(parents=True)
        file.touch()
    (folder / "nvidia" / "notes").mkdir()
    return folder


def test_the_packages_that_the_wheels_lack(tmp_path: Path) -> None:
    """The pins of the requirements name them; Triton's own wheel is not one of CUDA's."""
    assert cuda.lacking(REQUIREMENTS, tmp_path) == {"nvidia-cublas": "13.1.1.0", "nvidia-cudnn-cu13": "9.20.0"}
    (tmp_path / "nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl").touch()
    assert cuda.lacking(REQUIREMENTS, tmp_path) == {"nvidia-cudnn-cu13": "9.20.0"}


def test_pip_takes_the_wheels_in_their_place(tmp_path: Path) -> None:
    """It needs no index, and knows the version afterwards, which fits the pin."""
    cuda.stand_ins({"nvidia-cublas": "13.1.1.0"}, tmp_path / "wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    words = ["install", "--no-index", "--find-links", str(tmp_path / "wheels"), "--target", str(tmp_path / "site")]
    subprocess.run([*pip, *words, "nvidia-cublas~=13.1.1.0"], check=True, capture_output=True)
    listed = subprocess.run(
        [*pip, "list", "--path", str(tmp_path / "site"), "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(listed.stdout) == [{"name": "nvidia-cublas", "version": "13.1.1.0"}]


def test_libraries_are_linked_once(tmp_path: Path) -> None:
    """Only folders of libraries, and again nothing; a link that leads nowhere is made again."""
    site = with_cuda(tmp_path / "torch")
    own = packages(tmp_path / "server")
    (own / "nvidia").mkdir()
    (own / "nvidia" / "cudnn").symlink_to(tmp_path / "gone")
    assert cuda.link(site, tmp_path / "server") == ["cu13", "cudnn"]
    assert cuda.link(site, tmp_path / "server") == []
    assert next(own.glob(cuda.LIBRARY)).is_file()


def test_the_first_packages_with_the_library_count(tmp_path: Path) -> None:
    """Folders that are not there are passed over."""
    site = with_cuda(tmp_path / "second")
    assert cuda.site_with(cuda.LIBRARY, ["", str(tmp_path / "nowhere"), str(tmp_path), str(site)]) == site
    assert cuda.site_with(cuda.LIBRARY, [str(tmp_path)]) is None


def test_pytorch_is_lent_after_the_environment_s_own_packages(tmp_path: Path) -> None:
    """Its numpy must not take the place of the environment's."""
    site = tmp_path / "torch"
    (site / "numpy").mkdir(parents=True)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").touch()
    own = packages(tmp_path / "server")
    (own / "numpy").mkdir()
    cuda.lend_torch(site, tmp_path / "server")
    code = f"import site; site.addsitedir({str(own)!r}); import torch, numpy; print(torch.__file__, *numpy.__path__)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(site / "torch" / "__init__.py"), str(own / "numpy"), str(site / "numpy")]


def test_wheels_without_cuda_need_a_python_that_has_it(tmp_path: Path) -> None:
    """The step names the missing wheels before anything is made."""
    (tmp_path / "wheels").mkdir()
    place = Place(tmp_path / "run", tmp_path / "wheels")
    if cuda.site_with(cuda.LIBRARY) is None:
        with pytest.raises(StepError, match=r"nvidia-cublas.*no package of this Python brings CUDA 13"):
            place.own_cuda(REQUIREMENTS)
    assert place.variables["PIP_NO_INDEX"] == "1"


def test_a_bundle_s_machine_builds_no_models() -> None:
    """Its environment for the client has no ONNX."""
    assert any(word.startswith("onnx") for word in client_requirements(builds=True))
    assert not any(word.startswith("onnx") for word in client_requirements(builds=False))
    modules = ("bench.gpu.serving", "bench.gpu.callers", "bench.gpu.engine", "bench.gpu.accuracy")
    code = f"import sys; sys.modules.update(onnx=None, onnxruntime=None); import {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROJECT)


def test_the_client_has_what_the_plugins_of_the_tests_import() -> None:
    """A fresh clone has no `make setup`: the tests marked gpu run in that environment."""
    names = {re.split(r"[^\w-]", word)[0].replace("-", "_") for word in client_requirements(builds=False)}
    for module in ("tests.conftest", *pytest_plugins):
        file = PROJECT / f"{module.replace('.', '/')}.py"
        for node in ast.parse(file.read_text()).body:
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for root in {name.split(".")[0] for name in imported} - sys.stdlib_module_names:
                assert root in {*names, "tests", "tritonkit", "bench"}, f"{module} imports {root}"
