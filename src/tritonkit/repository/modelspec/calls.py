"""The models that a Python model calls while it answers (Triton's BLS), read from its text. Nothing is run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WrittenCalls", "written_calls"]

_REQUEST = "InferenceRequest"
"""The class of `triton_python_backend_utils` by which a Python model calls another."""

_LARGEST = 1 << 20
"""Largest file, in bytes, that is read for names."""


@dataclass(frozen=True)
class WrittenCalls:
    """The calls of other models in a file: the names that are written out, and whether others are computed."""

    names: frozenset[str] = frozenset()
    computed: bool = False


def written_calls(file: Path) -> WrittenCalls:
    """The models in `InferenceRequest(model_name=...)`, given as a text or as a module's constant; none if the file
    cannot be read."""
    try:
        text = file.read_bytes()
        if _REQUEST.encode() not in text or len(text) > _LARGEST:
            return WrittenCalls()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the compiler about the file's own text
            tree = ast.parse(text)
    # ValueError: a null byte, before Python 3.12; the last two: deeper than the parser goes.
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return WrittenCalls()
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = [
        _text(keyword.value, constants)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) == _REQUEST
        for keyword in node.keywords
        if keyword.arg == "model_name"
    ]
    return WrittenCalls(frozenset(filter(None, names)), not all(names))


def _called(node: ast.Call) -> str:
    """The last part of the called function's name."""
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _text(value: ast.expr, constants: dict[str, Any]) -> str:
    """A text that is written out; empty for a computed one."""
    text: Any = None
    if isinstance(value, ast.Constant):
        text = value.value
    elif isinstance(value, ast.Name):
        text = constants.get(value.id)
    return text if isinstance(text, str) else ""
