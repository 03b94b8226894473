"""The steps' modules, which Triton imports next to each other in a version's folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import PROJECT

STEPS = PROJECT / "python_backends" / "steps"
MODULES = {path.stem: path for path in STEPS.rglob("*.py") if path.name != "model.py"}


def defined(file: Path) -> set[str]:
    """The names that a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("file", sorted(STEPS.rglob("*.py")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_what_a_step_imports_is_there(file: Path) -> None:
    """A name that moved to another module would fail only in a server."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            missing = {alias.name for alias in node.names} - defined(MODULES[node.module])
            assert not missing, f"line {node.lineno}: {node.module} has no {', '.join(missing)}"
