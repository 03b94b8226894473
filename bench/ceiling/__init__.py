"""Triton's ceiling: a model with another's configuration, and a backend that computes nothing."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import text_format

from tritonkit.errors import BuildError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = ["add_ceiling", "ceiling_repository"]

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "python_backends" / "native"
BACKEND = "ceiling"


@contextmanager
def ceiling_repository(source: Path, *models: str) -> Iterator[tuple[Path, str]]:
    """Yield a repository with copies of these models and the first one's ceiling, and the ceiling's name.

    Raises:
        UsageError: a model is not built; and as `add_ceiling`.
    """
    with tempfile.TemporaryDirectory(prefix="tritonkit-ceiling-") as folder:
        repository = Path(folder) / "repository"
        for model in models:
            if not any((source / model).glob("*/model.onnx")):
                raise UsageError(
                    str(source / model),
                    found="no <version>/model.onnx",
                    todo=f"build it first: python tools/build_repo.py {model.removesuffix('_network')}",
                )
            shutil.copytree(source / model, repository / model)
        yield repository, add_ceiling(repository, models[0])


def add_ceiling(repository: Path, model: str) -> str:
    """Add a model to `repository` with the configuration of `model`, and the empty backend; return its name.

    Triton looks for a backend's library in the model's own folder first, so it goes there.

    Args:
        repository: a folder of models; `model` is one of them, with a single FP32 output of fixed shape.

    Raises:
        BuildError: there is no C++ compiler, or it failed.
        UsageError: the model has another kind of output.
    """
    from tritonclient.grpc import model_config_pb2 as schema

    file = repository / model / "config.pbtxt"
    config: Any = text_format.Parse(file.read_text(), schema.ModelConfig())  # type: ignore[no-untyped-call, unused-ignore]
    (output,) = config.output
    if output.data_type != schema.TYPE_FP32 or len(output.dims) != 1:
        raise UsageError(str(file), found=f"output {output.name}", wanted="one FP32 output with one axis")
    config.name, config.backend = f"{model}_ceiling", BACKEND
    del config.model_warmup[:]
    folder = repository / config.name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config))
    _compile(folder, output.name, output.dims[0])
    return str(config.name)


def _compile(folder: Path, output: str, width: int) -> None:
    """Compile the library for the output's name and width with the first compiler of this machine."""
    build = _build()
    compiler = next(filter(None, map(shutil.which, build.CPP.compilers)), None)
    if compiler is None:
        raise BuildError(
            f"the backend {BACKEND}",
            found="no C++ compiler on PATH",
            wanted=f"one of {', '.join(build.CPP.compilers)}",
            todo="install one: apt-get install g++",
        )
    words = [
        compiler,
        *build.COMPILE,
        *build.CPP.flags,
        "-I",
        NATIVE / "backend",
        f'-DCEILING_OUTPUT="{output}"',
        f"-DCEILING_WIDTH={width}",
        HERE / "ceiling.cpp",
        "-o",
        folder / f"libtriton_{BACKEND}.so",
        *build.LINK,
        *build.CPP.link,
    ]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"the backend {BACKEND}", found=f"{compiler} failed", details=done.stderr[-2000:])


def _build() -> ModuleType:
    """Import python_backends/native/build.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
    if spec is None or spec.loader is None:
        raise BuildError(str(NATIVE / "build.py"), found="it cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
