"""Run Python outside of the server's environment from its source, never from compiled files next to it.

`tritonkit_sources.pth` imports this in each interpreter of the environment, before Triton's stub imports a model.py.
The stub ignores PYTHONDONTWRITEBYTECODE and PYTHONPYCACHEPREFIX. Signatures and manifests cover sources, and a compiled
file may hold another program than its source: one marked as unchecked is run without a look at the source.
"""

from __future__ import annotations

import os
import site
from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType

__all__: list[str] = []

_from_cache = SourceFileLoader.get_code


@cache
def _environment() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages; read once `site` has found them."""
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib costs each start 10 ms
    return tuple(os.path.join(folder, "") for folder in (library, *site.getsitepackages()))  # noqa: PTH118


def _get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
    """The code of a module; nothing is read from `__pycache__`, or written there, outside of the environment."""
    file = loader.get_filename(name)
    if file.startswith(_environment()):
        return _from_cache(loader, name)
    return loader.source_to_code(loader.get_data(file), file)


SourceFileLoader.get_code = _get_code  # type: ignore[method-assign]
