"""The Python packages that a function's image installs: pinned, and only those that its files import."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import RenderError, UsageError
from tritonkit.repository.modelspec.contents import imported_modules

__all__ = ["Pin", "parse_requirement", "pins", "requirements"]

_PIN = re.compile(r"(?P<pin>(?P<name>[A-Za-z0-9._-]+)==[^\s#;]+)\s*(# import (?P<module>\w+))?")
_ALWAYS = {"numpy", "onnxruntime", "awslambdaric", "triton_python_backend_utils"}


@dataclass(frozen=True)
class Pin:
    """`NAME==VERSION` as pip reads it, and the module that it is needed for; "" for one that is always there."""

    text: str
    module: str


def pins(text: str) -> list[Pin]:
    """The pins of deploy/lambda/requirements.txt."""
    matches = (_PIN.fullmatch(line.strip()) for line in text.splitlines())
    return [Pin(match["pin"], match["module"] or "") for match in matches if match]


def parse_requirement(text: str) -> Pin:
    """`scipy==1.17.0`, or `cv2=opencv-python-headless==4.12.0.88` where the module is called otherwise.

    Raises:
        UsageError: the text is neither.
    """
    module, equals, rest = text.partition("=")
    named = bool(equals) and not rest.startswith("=")
    match = _PIN.fullmatch(rest if named else text)
    if match is None or match["module"]:
        raise UsageError("--require", found=repr(text), wanted="NAME==VERSION, or MODULE=NAME==VERSION")
    return Pin(match["pin"], module if named else match["name"].replace("-", "_"))


def requirements(python: Mapping[str, Path], own: Iterable[str], shipped: Sequence[Pin], more: Sequence[Pin]) -> str:
    """The text of requirements.txt.

    Args:
        python: name for messages -> a Python file that will run.
        own: modules in the same folders.
        shipped: pins that come with tritonkit.
        more: pins from the command line.

    Raises:
        RenderError: a file imports a module that none of the pins installs.
    """
    here = _ALWAYS | set(own) | set(sys.stdlib_module_names)
    brought = {pin.module for pin in (*shipped, *more)}
    imported: set[str] = set()
    for name, file in python.items():
        for module in sorted(imported_modules(file) - here):
            if module not in brought:
                raise RenderError(
                    name,
                    found=f"it imports {module}, which the function's image would not have",
                    wanted=f"one of {', '.join(sorted(_ALWAYS - {'awslambdaric'} | brought - {''}))}",
                    todo=f"name its version, and those of what it needs: --require {module}==VERSION",
                )
            imported.add(module)
    chosen = [pin.text for pin in shipped if not pin.module or pin.module in imported]
    lines = [*chosen, *(pin.text for pin in more)]
    return "# pip install --no-deps: all that the function imports.\n" + "\n".join(lines) + "\n"
