"""The files of a model's folder, and which of its Python would run when. Nothing is run or imported here."""

from __future__ import annotations

import ast
import importlib.util
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tritonkit.repository.modelspec.entries import PipelineStep
from tritonkit.repository.modelspec.load import Spec

__all__ = [
    "FolderFile",
    "PythonUse",
    "build_python",
    "imported_modules",
    "list_files",
    "own_python",
    "package_files",
    "python_uses",
    "tries_own_python",
]

_CODE = (".py", ".pyc", ".so")
_PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_PACKAGE = ".pt2"
"""torch.export.load reads tensors by pickle where the file says so; a compiled package is a library."""


@dataclass(frozen=True)
class FolderFile:
    """A file of the folder: its path there, its size, and a remark for the reader."""

    path: str
    size_bytes: int
    remark: str = ""


@dataclass(frozen=True)
class PythonUse:
    """Python of the folder: when it runs, and for which purpose.

    `when` is `build`, `some variants` (of a build), `server` (inside Triton, while it serves), or `if imported`.
    """

    file: str
    when: str
    what: str


def list_files(spec: Spec) -> tuple[FolderFile, ...]:
    """Every file below the folder, by path; links are not followed."""
    files = []
    for base, folders, names in os.walk(spec.folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        for name in (*names, *links):
            path = Path(base) / name
            state = path.lstat()
            files.append(FolderFile(_inner(path, spec), state.st_size, _remark(path, spec, state)))
    return tuple(sorted(files, key=lambda file: file.path))


def _remark(path: Path, spec: Spec, state: os.stat_result) -> str:
    if stat.S_ISLNK(state.st_mode):
        try:
            inside = path.resolve().is_relative_to(spec.folder.resolve())
        except (OSError, RuntimeError):  # it leads to itself
            inside = False
        return f"a link to {path.readlink()}" + ("" if inside else ", out of the folder")
    if not stat.S_ISREG(state.st_mode):
        return "not a regular file"
    if path.suffix in _PICKLES:
        return "may be a pickle, which runs code where it is read without weights_only"
    if path.suffix == _PACKAGE:
        return "may have code or a pickle, which PyTorch runs where it is loaded"
    return _hidden(_inner(path, spec)) if path.suffix in _CODE else ""


def _hidden(path: str) -> str:
    """A remark if a module's name hides another module from the folder's hooks."""
    parts = path.removesuffix("/__init__.py").split("/")
    module = parts[0].partition(".")[0]
    if len(parts) > 1 or not module.isidentifier():
        return ""
    if module in sys.stdlib_module_names:
        return f"hides Python's own {module} from the folder's code"
    try:
        installed = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        installed = False
    return f"hides the installed {module} from the folder's code" if installed else ""


def python_uses(spec: Spec) -> tuple[PythonUse, ...]:
    """The folder's Python by the time at which it runs: hooks, modules they import by name, steps, and other code."""
    uses = [*_hook_uses(spec), *_tried_uses(spec), *_server_uses(spec), *_library_uses(spec)]
    direct = dict.fromkeys(use.file for use in uses)
    uses += [
        PythonUse(file, when, f"imported by {importer}")
        for file, (when, importer) in _imported(spec, uses).items()
        if file not in direct
    ]
    named = {use.file for use in uses}
    uses += [
        PythonUse(file.path, "if imported", "nothing names it")
        for file in list_files(spec)
        if file.path.endswith(_CODE) and file.path not in named
    ]
    return tuple(uses)


def build_python(spec: Spec, optimized: bool = False) -> tuple[str, ...]:
    """The files that a build of the network runs, as far as imports by name show.

    Args:
        optimized: whether forms other than the plain one are made too.
    """
    when = {"build", "some variants"} if optimized else {"build"}
    return tuple(dict.fromkeys(use.file for use in python_uses(spec) if use.when in when))


def _hook_uses(spec: Spec) -> Iterator[PythonUse]:
    copied = spec.model.network.python is not None  # not measured, but perhaps tried
    hooks = spec.model.hooks
    if copied:
        tried = tries_own_python(spec)
        hooks = {name: hook for name, hook in hooks.items() if tried and name == "quality.samples"}
    for field, hook in hooks.items():
        module, function = hook.split(":")
        when = "some variants" if field.startswith("optimize.") else "build"
        yield PythonUse(f"{module}.py", when, f"{field}: {function}()")


def tries_own_python(spec: Spec) -> bool:
    """Whether a build runs steps or a `python` network of the user's own in a server. That needs several items to try
    in batches, and a part that is not declared independent."""
    model = spec.model
    several = model.quality.samples is not None or any(e.more for e in model.example.values())
    parts = [part.serving for part in model.pipeline if isinstance(part, PipelineStep)]
    if model.network.python is not None:
        parts.append(model.serving)
    return several and any(not serving.independent_items for serving in parts)


def own_python(spec: Spec) -> tuple[str, ...]:
    """The files of the folder that a server runs."""
    return tuple(dict.fromkeys(use.file for use in _server_uses(spec)))


def _tried_uses(spec: Spec) -> Iterator[PythonUse]:
    if spec.model.sample_files:
        for use in _step_uses(spec):
            yield PythonUse(use.file, "build", f"{use.what}, for samples in files")
    if tries_own_python(spec):
        for use in _server_uses(spec):
            yield PythonUse(use.file, "build", f"{use.what}, tried in batches by a server")


def _server_uses(spec: Spec) -> Iterator[PythonUse]:
    if spec.model.network.python is not None:
        yield PythonUse(spec.model.network.python, "server", "network.python")
        for more in spec.model.network.files:
            if isinstance(more, str) and more.endswith(_CODE):
                yield PythonUse(more, "server", "network.files")
    if spec.model.network.folder is not None:
        folder = spec.folder / spec.model.network.folder
        for file in sorted(file for file in folder.rglob("*.py") if file.is_file()):
            yield PythonUse(_inner(file, spec), "server", "network.folder")
    yield from _step_uses(spec)


def _library_uses(spec: Spec) -> Iterator[PythonUse]:
    """Libraries of operators, which ONNX Runtime loads in a build, and later in a server."""
    for library in spec.model.network.op_libraries:
        if isinstance(library, str):
            yield PythonUse(library, "build", "network.op_library")
            yield PythonUse(library, "server", "network.op_library")


def _step_uses(spec: Spec) -> Iterator[PythonUse]:
    own = [step for step in spec.steps if step and step.folder.is_relative_to(spec.folder)]
    for step in own:
        shared = sorted(step.folder.parent.glob("*.py"))
        for file in (*shared, *sorted(step.folder.glob("*.py"))):
            yield PythonUse(_inner(file, spec), "server", f"step {step.folder.name}")


def _imported(spec: Spec, uses: list[PythonUse]) -> dict[str, tuple[str, str]]:
    """Files that the hooks import by name, directly or not: file -> time at which it runs, and importing file."""
    imported: dict[str, tuple[str, str]] = {}
    served = {use.file for use in uses if use.when == "server"}
    left = [(use.file, use.when) for use in uses if use.file not in served]
    left.sort(key=lambda item: item[1] != "build")
    seen = set()
    while left:
        importer, when = left.pop(0)
        if importer in seen:
            continue
        seen.add(importer)
        for module in sorted(imported_modules(spec.folder / importer)):
            files = [f"{module}.py"] if (spec.folder / f"{module}.py").is_file() else []
            files = files or [f"{module}/{path}" for path in package_files(spec.folder / module)]
            for file in files:
                imported.setdefault(file, (when, importer))
                left.insert(0, (file, when))
    return imported


def package_files(folder: Path) -> tuple[str, ...]:
    """The Python below a folder that can be imported as a package; none for another folder."""
    if not folder.is_dir():
        return ()
    paths = (file.relative_to(folder) for file in sorted(folder.rglob("*.py")) if file.is_file())
    return tuple(path.as_posix() for path in paths if all(part.isidentifier() for part in path.with_suffix("").parts))


def imported_modules(file: Path) -> set[str]:
    """Top-level modules that a Python file imports; none if it cannot be parsed, which its hook will report."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the compiler about the file's own text
            tree = ast.parse(file.read_bytes())
    # ValueError: a null byte, before Python 3.12; the last two: deeper than the parser goes.
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _inner(path: Path, spec: Spec) -> str:
    return path.relative_to(spec.folder).as_posix()
