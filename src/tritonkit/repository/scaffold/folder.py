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
from tritonkit.text import printable

__all__ = ["refuse_taken", "write_folder"]

_SCHEMA = "docs/model.schema.json"
"""The schema for editors, in a clone or written by `tritonkit schema`."""
_MAP, _SEQUENCE = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_WIDTH = 120
_SHORT = 120
"""Characters of a dictionary in Python, up to which it is written in one line."""


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
    staged = folder.with_name(f".{name}-{os.getpid()}")  # a hidden folder is not a model
    try:
        staged.mkdir(parents=True)
        (staged / "model.yaml").write_text(text, encoding="utf-8")
        for file, content in (code or {}).items():
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            (staged / file).write_bytes(content)
        for file, source in files.items():
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
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

    class Dumper(yaml.SafeDumper):
        """The usual one, which writes `_Braced` and `_Bracketed` in a line, and the same list twice."""

        def ignore_aliases(self, data: Any) -> bool:
            """Whether a value that stands in two places is written out in each: a reader edits one of them."""
            return True

    Dumper.add_representer(_Braced, lambda dumper, value: dumper.represent_mapping(_MAP, value, flow_style=True))
    Dumper.add_representer(
        _Bracketed, lambda dumper, value: dumper.represent_sequence(_SEQUENCE, value, flow_style=True)
    )
    lines: list[str] = []
    for key, value in settings.items():
        commented = key == "network" and bool(below_network)  # comments go below a block
        text = yaml.dump({key: _styled(value, 0, commented)}, Dumper=Dumper, sort_keys=False, width=_WIDTH)
        lines += [*text.splitlines(), *(f"  {_in_line(line)}" for line in below_network if commented)]
    return "\n".join([*lines, *map(_in_line, at_end), ""])


def _in_line(comment: str) -> str:
    """A comment that may have names of a stranger's file: none of them can end its line."""
    return printable(comment, lines=False)


class _Braced(dict[str, Any]):
    """A dictionary that is written in one line."""


class _Bracketed(list[Any]):
    """A list that is written in one line."""


def _styled(value: Any, depth: int, block: bool = False) -> Any:
    """In one line: lists of plain values, and short dictionaries that are of plain values or lie two levels deep."""
    if isinstance(value, Mapping):
        nested = any(isinstance(item, Mapping) for item in value.values())
        if not block and (depth > 1 or not nested) and len(str(value)) <= _SHORT:
            return _Braced(value)
        return {key: _styled(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if not any(isinstance(item, Mapping) for item in value):
            return _Bracketed(value)
        return [_styled(item, depth + 1, block=True) for item in value]
    return value
