"""Libraries with custom operators, which ONNX Runtime loads for the networks of one spec.

They are code: what a library does when it is loaded, it does in the build and in the server. So a library is only
looked at before (`elf.py`), and loaded only where a network of its own spec is opened.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.elf import read_library
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.modelspec import Spec, resolve_file
from tritonkit.text import first_line
from tritonkit.watched import step

__all__ = ["copy_libraries", "libraries_in_use", "operators_in", "operators_of", "register_operators"]

_ENTRY = "RegisterCustomOps"
"""The function of a library that ONNX Runtime calls."""
_PYTHON = ("PyObject_", "PyErr_", "PyExc_", "PyType_", "_Py_")
"""Beginnings of symbols that a process without Python does not have."""
_FIELD = "network.op_library"


@dataclass(frozen=True)
class _Libraries:
    where: str
    files: tuple[Path, ...]


_IN_USE: ContextVar[_Libraries | None] = ContextVar("libraries of operators", default=None)


@contextmanager
def operators_of(spec: Spec) -> Iterator[None]:
    """Sessions that are opened in this block know the operators of the spec's libraries, and of no other spec's.

    Raises:
        BuildError: a library cannot be loaded by a server of this machine's kind.
    """
    with operators_in(_files(spec), f"{spec.file} {_FIELD}"):
        yield


@contextmanager
def operators_in(files: Sequence[Path], where: str) -> Iterator[None]:
    """Sessions that are opened in this block know the operators of these libraries alone.

    Raises:
        BuildError: a library cannot be loaded by a server of this machine's kind.
    """
    for file in files:
        _check(file, where)
    token = _IN_USE.set(_Libraries(where, tuple(files)))
    try:
        yield
    finally:
        _IN_USE.reset(token)


def register_operators(options: Any) -> None:
    """Add the libraries in use to a session's options.

    Raises:
        BuildError: ONNX Runtime refuses one.
    """
    for file in libraries_in_use():
        try:
            with step(f"ONNX Runtime loads {file.name}"):
                options.register_custom_ops_library(str(file))
        except Exception as error:  # ONNX Runtime's own classes have no common root
            raise BuildError(
                _where(),
                found=f"ONNX Runtime {need('onnxruntime', 'build').__version__} cannot load {file.name}:"
                f" {first_line(error).removeprefix('[ONNXRuntimeError] : 1 : FAIL : ')}",
                wanted="a library of operators that was compiled for this or an older version of ONNX Runtime",
                todo="install the libraries that it needs, or compile it again",
            ) from error


def libraries_in_use() -> tuple[Path, ...]:
    """The files of the libraries in use, for sessions in other processes."""
    in_use = _IN_USE.get()
    return in_use.files if in_use else ()


def copy_libraries(spec: Spec, folder: Path, reserved: Collection[str]) -> None:
    """Copy a spec's libraries into the folder of a variant, under the names by which the spec has them.

    Args:
        reserved: names of files that the build writes there later.

    Raises:
        BuildError: another file there has the name of a library.
    """
    for name, file in zip(spec.model.network.op_library_names, _files(spec), strict=True):
        if name in reserved or (folder / name).exists():
            raise BuildError(
                f"{spec.file} {_FIELD}",
                found=f"{name}, and another file of the network has this name",
                wanted="distinct names, because all files lie in one version folder",
            )
        copy_file(file, folder / name)


def _where() -> str:
    in_use = _IN_USE.get()
    return in_use.where if in_use else ""


def _files(spec: Spec) -> tuple[Path, ...]:
    return tuple(resolve_file(one, spec, _FIELD) for one in spec.model.network.op_libraries)


def _check(file: Path, where: str) -> None:
    """BuildError for a file that no server of this machine's kind loads; nothing of it is run."""
    library, machine = read_library(file), platform.machine()
    if library is None:
        raise BuildError(
            where,
            found=f"{file.name} ({file.stat().st_size} bytes) is not a shared library of Linux (ELF, 64 bits)",
            wanted="a compiled library with operators for ONNX Runtime",
            todo="give the .so file that the linker wrote (-shared)",
        )
    if library.machine != machine:
        raise BuildError(
            where,
            found=f"{file.name} is for {library.machine}, and this machine is {machine}",
            wanted=f"a library for {machine}",
            todo="compile it for this processor, or build where the model is served",
        )
    if library.defined is not None and _ENTRY not in library.defined:
        raise BuildError(
            where,
            found=f"{file.name} has no function {_ENTRY}",
            wanted=f"a library that exports {_ENTRY}, which ONNX Runtime calls to learn its operators",
            todo=f'declare it as extern "C" OrtStatus* {_ENTRY}(OrtSessionOptions*, const OrtApiBase*), and export it',
        )
    has_python = any(name.startswith("libpython") for name in library.needed)
    symbols = sorted(name for name in library.undefined if name.startswith(_PYTHON))
    if symbols and not has_python:
        raise BuildError(
            where,
            found=f"{file.name} is a module for Python: it needs {symbols[0]} and others, which a server lacks",
            wanted="a library that loads without Python",
            todo="compile it without its Python module (onnxruntime-extensions gives libortextensions.so then); or"
            " serve the file from Python: network: {python: server.py, files: [...]}",
        )
