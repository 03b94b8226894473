"""Text that comes with Python itself: its language reference, and the documentation inside the standard library."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

_LEAST = 120
"""Least number of characters of a text that is used."""
_OTHERS = ("idlelib", "lib2to3", "site-packages", "test", "tests")


def documents() -> list[str]:
    """All texts, in an order that is the same wherever Python's version is."""
    return sorted({text.strip() for text in _all() if len(text.strip()) >= _LEAST})


def is_held_out(text: str) -> bool:
    """Whether a text, one of twenty, is only for measuring."""
    return hashlib.sha256(text.encode()).digest()[0] % 20 == 0


def held_out() -> list[str]:
    """Texts on which the network was not trained, from many topics."""
    return [text for text in documents() if is_held_out(text)][::4][:64]


def _all() -> Iterator[str]:
    from pydoc_data.topics import topics

    for topic in topics.values():
        yield from _paragraphs(topic)
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.rglob("*.py")):
        if not set(file.relative_to(library).parts) & set(_OTHERS):
            yield from _docstrings(file)


def _paragraphs(text: str) -> Iterator[str]:
    """A topic in pieces of about a page."""
    piece = ""
    for part in inspect.cleandoc(text).split("\n\n"):
        piece += f"{part}\n\n"
        if len(piece) > 1000:
            yield piece
            piece = ""
    yield piece


def _docstrings(file: Path) -> Iterator[str]:
    """The docstrings of a file, which is read and not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
