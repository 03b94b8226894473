"""Modules of a model's own Python in this process.

A `model.py` imports its neighbors and Triton's module by plain names. In this process such names belong to others, so
they stand for the model's modules only while the model works.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tritonkit.resources import shipped

__all__ = ["STAND_IN", "PlainModules"]

STAND_IN = {name: f"deploy/lambda/{name}.py" for name in ("triton_python_types", "triton_python_backend_utils")}
"""The shipped modules that stand for Triton's, which is the last and imports the others."""


class PlainModules:
    """The modules of one model.

    Args:
        folders: folders in which its imports are looked up first, in this order.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._modules: dict[str, Any] = {}
        names = {file.stem for folder in self._folders for file in folder.glob("*.py")}
        names |= {file.parent.name for folder in self._folders for file in folder.glob("*/__init__.py")}
        self._names = frozenset(names | {"model", *STAND_IN})

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Let plain names stand for the model's modules; paths and variables that it changes are restored."""
        before = {name: sys.modules.pop(name) for name in self._loaded()}
        path, environment = list(sys.path), dict(os.environ)
        sys.path[:0] = map(str, self._folders)
        sys.modules.update(self._modules)
        try:
            yield
        finally:
            self._modules = {name: sys.modules.pop(name) for name in self._loaded()}
            sys.modules.update(before)
            sys.path[:] = path
            os.environ.clear()
            os.environ.update(environment)

    def _loaded(self) -> list[str]:
        """Names in `sys.modules` of the model's modules, and of those in its packages."""
        return [name for name in sys.modules if name.partition(".")[0] in self._names]

    def load(self, name: str, file: Path) -> Any:
        """Import a file under a plain name; called inside."""
        definition = importlib.util.spec_from_file_location(name, file)
        assert definition is not None  # noqa: S101  a .py file always has a loader
        assert definition.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(definition)
        sys.modules[name] = module
        definition.loader.exec_module(module)
        return module

    def load_triton(self) -> Any:
        """The stand-in of Triton's module."""
        return [self.load(name, shipped(file)) for name, file in STAND_IN.items()][-1]
