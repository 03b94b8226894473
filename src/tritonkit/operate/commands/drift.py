"""`tritonkit deploy --check`: compare the files on disk with a fresh render."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.cli.output import print_line
from tritonkit.errors import RenderError

if TYPE_CHECKING:
    from tritonkit.operate.deploy import Changes

__all__ = ["refuse_drift"]

_NAMED = 5
"""Files that the message names; standard output has all of them."""


def refuse_drift(folder: Path, changes: Changes, todo: str, as_json: bool) -> None:
    """Print how the folder differs, but not among JSON.

    Raises:
        RenderError: the folder differs.
    """
    if not changes:
        return
    if not as_json:
        left = [f"{path}: it is too much" for path in changes.left]
        print_line("\n".join([*changes.differing.values(), *left]))
    paths = [*changes.differing, *changes.left]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    raise RenderError(str(folder), found=f"not as rendered: {', '.join(paths[:_NAMED])}{more}", todo=todo)
