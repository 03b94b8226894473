"""The Python of a published step: its own files, those that its neighbors share, and the shipped modules it imports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec import ResolvedStep, Spec
from tritonkit.repository.modelspec.contents import imported_modules
from tritonkit.resources import STEPS, shipped

__all__ = ["shipped_imports", "step_code"]


def step_code(step: ResolvedStep, spec: Spec) -> dict[str, Path]:
    """File name -> path of all that a published step needs."""
    files = [*sorted(step.folder.parent.glob("*.py")), *sorted(step.folder.glob("*.py"))]
    own = step.folder.is_relative_to(spec.folder)
    base = (spec.folder if own else step.folder.parent).resolve()
    for file in files:
        if not file.resolve().is_relative_to(base):
            raise RenderError(
                str(file),
                found=f"a link that leads out of {base}",
                wanted="a file inside it, because the link's target would be published",
            )
        if not file.is_file():
            raise RenderError(str(file), found="not a regular file", wanted="Python of the step")
    named = {file.name: file for file in files}
    return named | shipped_imports(named.values())


def shipped_imports(files: Collection[Path]) -> dict[str, Path]:
    """The shipped steps' modules that these files import, directly or not; files among these of the same name win."""
    folder = shipped(STEPS)
    modules = {file.stem: file for file in (*folder.glob("*.py"), *folder.glob("*/*.py")) if file.stem != "model"}
    own = {file.stem for file in files}
    imported: dict[str, Path] = {}
    left = list(files)
    while left:
        for name in sorted(imported_modules(left.pop()) & modules.keys() - own):
            if f"{name}.py" not in imported:
                imported[f"{name}.py"] = modules[name]
                left.append(modules[name])
    return dict(sorted(imported.items()))
