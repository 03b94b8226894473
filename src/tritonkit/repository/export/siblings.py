"""The Python that a file imports from its own folder: modules and packages next to it, and their own imports."""

from __future__ import annotations

import ast
from pathlib import Path

from tritonkit.repository.modelspec.contents import imported_modules, package_files

__all__ = ["imports_relatively", "package_code", "sibling_code"]


def sibling_code(file: Path, places: tuple[Path, ...]) -> dict[str, bytes]:
    """Path -> the Python that `file` imports, directly or not, from the folders `places`; packages as a whole."""
    code: dict[str, bytes] = {}
    left = [file]
    while left:
        for name in sorted(imported_modules(left.pop())):
            for path, source in _found(name, places).items():
                if path not in code and source != file:
                    code[path] = source.read_bytes()
                    left.append(source)
    return code


def package_code(folder: Path) -> dict[str, bytes]:
    """Path, beginning with the package's name -> Python source, for each file of a package."""
    return {f"{folder.name}/{path}": (folder / path).read_bytes() for path in package_files(folder)}


def _found(name: str, places: tuple[Path, ...]) -> dict[str, Path]:
    """The files of a module or package in the first folder that has it; none for an installed one."""
    for place in places:
        if (place / f"{name}.py").is_file():
            return {f"{name}.py": place / f"{name}.py"}
        if files := package_files(place / name):
            return {f"{name}/{path}": place / name / path for path in files}
    return {}


def imports_relatively(file: Path) -> bool:
    """Whether a module can be imported only as a part of its package, as with `from .layers import Block`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # its hook will say so
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
