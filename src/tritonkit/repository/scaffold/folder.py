"""The folder of a new model below `models/`."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonkit.disk import sync, sync_tree, unwritable
from tritonkit.errors import SpecError, UsageError
from tritonkit.repository.export.plain_files import copy_file

__all__ = ["refuse_taken", "write_folder"]

_SCHEMA = "docs/model.schema.json"
"""The schema for editors, in a clone or written by `tritonkit schema`."""


def refuse_taken(root: Path, name: str) -> None:
    """UsageError for a name that Triton or Python cannot use, and for one whose folder exists."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,127}", name):
        raise UsageError(
            f"NAME {name!r}", found="not a model's name", wanted="a letter, then at most 127 letters, digits, _ and -"
        )
    if (root / "models" / name).exists():
        raise UsageError(
            f"models/{name}", found="it is there already", todo="choose another name, or edit its model.yaml"
        )


def write_folder(
    root: Path,
    name: str,
    settings: Mapping[str, Any],
    files: Mapping[str, Path],
    code: Mapping[str, bytes] | None = None,
    comments: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Path:
    """Write the folder, complete or not at all; `comments` are lines below `network` and at the end of model.yaml."""
    text = _yaml_text({"name": name, **settings}, *comments)
    if (root / _SCHEMA).is_file():
        text = f"# yaml-language-server: $schema=../../{_SCHEMA}\n{text}"
    folder = root / "models" / name
    staged = folder.with_name(f".{name}-{os.getpid()}")  # a hidden folder is no model
    try:
        staged.mkdir(parents=True)
        (staged / "model.yaml").write_text(text, encoding="utf-8")
        for file, content in (code or {}).items():
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            (staged / file).write_bytes(content)
        for file, source in files.items():
            (staged / file).parent.mkdir(exist_ok=True)
            copy_file(source, staged / file)
        sync_tree(staged)
        staged.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise unwritable(folder, error, SpecError) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return folder


def _yaml_text(settings: Mapping[str, Any], below_network: Sequence[str], at_end: Sequence[str]) -> str:
    import yaml

    lines: list[str] = []
    for key, value in settings.items():
        in_network = key == "network" and bool(below_network)
        # Short dictionaries in braces, except one that gets comments below it.
        style = None if isinstance(value, dict) and not in_network else False
        text = yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=style, width=100)
        lines += [*text.splitlines(), *(f"  {line}" for line in below_network if in_network)]
    return "\n".join([*lines, *at_end, ""])
