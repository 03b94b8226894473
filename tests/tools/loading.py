"""Programs of tools/, which belong to no package."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.conftest import PROJECT


def load_tool(name: str) -> Any:
    """The module tools/NAME.py."""
    spec = importlib.util.spec_from_file_location(f"{name}_tool", PROJECT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
