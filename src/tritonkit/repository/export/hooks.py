"""Calls of the functions in a model's folder; errors name the hook and the field of model.yaml."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError, SpecError, TritonkitError
from tritonkit.repository.modelspec import Spec
from tritonkit.text import first_line
from tritonkit.watched import unbounded

__all__ = ["hook_errors", "last_calls", "load_hook"]


def load_hook(spec: Spec, hook: str, field: str) -> Callable[..., Any]:
    """The function that `module:function` names in the spec's folder.

    SpecError when the module has no such name; BuildError when importing or calling it fails.
    """
    module_name, function_name = hook.split(":")
    file = spec.folder / f"{module_name}.py"
    with hook_errors(spec, field, f"importing {file.name}"), _siblings_importable(spec.folder):
        definition = importlib.util.spec_from_file_location(module_name, file)
        assert definition is not None  # noqa: S101  a .py file always has a loader
        assert definition.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(definition)
        sys.modules[module_name] = module
        definition.loader.exec_module(module)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise SpecError(
            f"{spec.file} {field}",
            found=f"{file.name} has no function {function_name!r}",
            todo=f"define {function_name} in {file}, or correct the hook",
        )

    def call(*arguments: Any) -> Any:
        with hook_errors(spec, field, f"{hook} "), _siblings_importable(spec.folder):
            return function(*arguments)

    return call


def last_calls(error: BaseException) -> str:
    """The end of the error's traceback, for the details of a message."""
    return "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip()


@contextmanager
def hook_errors(spec: Spec, field: str, doing: str) -> Iterator[None]:
    """Turn any failure inside into a BuildError that names the hook and shows the last calls."""
    try:
        with unbounded():
            yield
    except (TritonkitError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{doing.strip()} failed: {type(error).__name__}: {first_line(error)}",
            todo="correct the Python in the model's folder",
            details=last_calls(error),
        ) from error


@contextmanager
def _siblings_importable(folder: Path) -> Iterator[None]:
    """Let a folder's files import each other, and leave no trace of them in `sys`.

    Two models may both have a `network.py`, and neither may import the other's.
    """
    path, before = list(sys.path), dict(sys.modules)
    sys.path.insert(0, str(folder))
    own = {file.stem for file in folder.glob("*.py")}
    own |= {package.parent.name for package in folder.glob("*/*.py")}
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if before.get(name) is not module and _is_inside(module, folder):
                del sys.modules[name]
        sys.modules.update({n: m for n, m in before.items() if n not in sys.modules})


def _is_inside(module: Any, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(folder)
