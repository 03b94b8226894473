"""A YAML file with the line of every key, and pydantic's complaints as errors that name that line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from tritonkit.errors import SpecError

__all__ = ["located", "nearest", "read_document"]

_Model = TypeVar("_Model", bound=BaseModel)
_Key = str | int
_TOO_DEEP = "it is nested deeper than any spec"

MAX_BYTES = 256 << 10
"""Largest size of a file: PyYAML takes seconds for this much, and a spec has a few KiB."""
_MAX_NODES = 50_000
_MAX_LEVELS = 50


class _Loader(yaml.SafeLoader):
    """YAML as editors read it (1.2): `off`, `yes` and dates are text; only true and false are bools."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if not tag.endswith((":bool", ":timestamp"))]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def nearest(name: str, names: Sequence[str]) -> str:
    """The nearest known name for an unknown one, or the list of known names."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"{close[0]!r}" if close else f"one of {', '.join(sorted(names)) or 'none'}"


def located(error: ValidationError, place: tuple[str, ...]) -> ValidationError:
    """Pydantic's complaints about a value that was put together, as complaints about a place of the document."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("value_error", "{message}", {"message": problem["msg"]}),
            loc=(*place, *problem["loc"]),
            input=problem["input"],
        )
        for problem in error.errors(include_url=False)
    ]
    return ValidationError.from_exception_data(error.title, details)


def read_document(file: Path, kind: type[_Model]) -> _Model:
    """Read one YAML file into `kind`; SpecError names the file, the line and the field.

    The file need not be trusted: nothing in it is run, and reading takes bounded time and memory.
    """
    root, data = _parse(file, _read(file))
    lines = dict(_lines(root, (), file, set()))
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _explain(file, kind, lines, error) from None


def _read(file: Path) -> str:
    """The text of a file that may be anything: a pipe, a device, larger than memory."""
    try:
        if file.exists() and not file.is_file():
            raise SpecError(str(file), found="it is not a regular file", wanted="a file in UTF-8")
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SpecError(
                str(file),
                found=f"it is larger than {MAX_BYTES >> 10} KiB",
                wanted="a spec; put larger data into other files",
            )
        return content.decode("utf-8")
    except FileNotFoundError:
        raise SpecError(
            str(file), found="there is no such file", todo="create it, or see `tritonkit new --help`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(str(file), found=f"it cannot be read: {error}", wanted="a readable file in UTF-8") from error


def _parse(file: Path, text: str) -> tuple[yaml.MappingNode, Any]:
    """The document as nodes, which know their lines, and as values."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise SpecError(str(file), found="it holds no keys", wanted="a mapping that starts with `name:`")
        nodes, levels = _extent(root, {})
        if levels > _MAX_LEVELS:
            raise SpecError(str(file), found=_TOO_DEEP)
        # Checked before values are made: merge keys (`<<`) copy what they name.
        if nodes > _MAX_NODES:
            raise SpecError(
                str(file),
                found=f"it has more than {_MAX_NODES} parts, with its aliases written out",
                wanted="a spec, whose parts do not grow by aliases of aliases",
            )
        return root, loader.construct_document(root)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(str(file), found=_TOO_DEEP) from None
    except Exception as error:  # for a wrong explicit tag PyYAML raises KeyError, IndexError and others
        text = str(error) if isinstance(error, yaml.YAMLError | ValueError) else repr(error)
        raise SpecError(
            str(file),
            found=f"it is not YAML: {text}",
            todo="correct it there; put a text that contains one of : ? # , [ ] { } in quotes",
        ) from error


def _extent(node: yaml.Node, extents_by_node: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Nodes and levels of a part with its aliases written out; too many for a part that contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1, 1
    if id(node) not in extents_by_node:
        extents_by_node[id(node)] = _MAX_NODES, 1
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        extents = [_extent(part, extents_by_node) for part in parts]
        most_levels = max((levels for _, levels in extents), default=0)
        extents_by_node[id(node)] = (1 + sum(nodes for nodes, _ in extents), 1 + most_levels)
    return extents_by_node[id(node)]


def _lines(
    node: yaml.Node, path: tuple[_Key, ...], file: Path, visited: set[int]
) -> Iterator[tuple[tuple[_Key, ...], int]]:
    """Every path of the document with its line; a key given twice is refused.

    A part that aliases repeat is read where it first appears.
    """
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise SpecError(
                    f"{file}:{line}", found=f"the key {key.value!r} is given twice", todo="keep one of them"
                )
            seen.add(key.value)
            yield (*path, key.value), line
            yield from _lines(value, (*path, key.value), file, visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark.line + 1
            yield from _lines(value, (*path, index), file, visited)


def _explain(
    file: Path, kind: type[BaseModel], lines: dict[tuple[_Key, ...], int], error: ValidationError
) -> SpecError:
    """One error for the most telling complaint (an unknown key before all others), with the rest as details."""
    problems = error.errors(include_url=False)
    # A union complains once per member: the deepest complaint is about the member that was meant.
    problems.sort(key=lambda p: (p["type"] != "extra_forbidden", -_known_depth(p["loc"], lines)))
    problem = problems[0]
    path = _document_path(problem["loc"], lines)
    where = f"{file}:{lines.get(path, 1)} {'.'.join(map(str, path))}".rstrip()
    # Complaints of the union's other members about this place, or about what contains it, are noise.
    elsewhere = [p for p in problems[1:] if not _holds(_document_path(p["loc"], lines), path)]
    others = "\n".join(_one_line(p) for p in elsewhere[:5])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        fields = _fields_at(kind, path[:-1], problem["loc"])
        return SpecError(
            where, found=f"unknown key {key!r}", wanted=nearest(key, fields), todo="correct the key, or remove it"
        )
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = f"the key {str(problem['loc'][-1])!r} is missing"
    what, _, expected = message.partition("; wanted ")
    todo = "correct it; docs/model.schema.json lists the allowed values"
    return SpecError(where, found=what, wanted=expected, todo=todo, details=others)


def _holds(outer: tuple[_Key, ...], inner: tuple[_Key, ...]) -> bool:
    return inner[: len(outer)] == outer


def _one_line(problem: Any) -> str:
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _document_path(loc: Sequence[_Key], lines: dict[tuple[_Key, ...], int]) -> tuple[_Key, ...]:
    """pydantic's location without the names of union members, which are not in the document."""
    path: tuple[_Key, ...] = ()
    for position, key in enumerate(loc):
        last = position == len(loc) - 1
        if (*path, key) in lines or (*path, str(key)) in lines or (last and "[" not in str(key) and not path):
            path = (*path, key if (*path, key) in lines else str(key))
    return path


def _known_depth(loc: Sequence[_Key], lines: dict[tuple[_Key, ...], int]) -> int:
    return len(_document_path(loc, lines))


def _fields_at(kind: type[BaseModel], path: Sequence[_Key], loc: Sequence[_Key]) -> list[str]:
    """Keys that are allowed at a path: those of every model that its annotation admits, or of the member of a tagged
    union that the complaint's location names."""
    kinds = [kind]
    for key in path:
        inner: list[type[BaseModel]] = []
        for candidate in kinds:
            field = next((f for n, f in candidate.model_fields.items() if (f.alias or n) == str(key)), None)
            if field is not None:
                inner += _models_in(field.annotation, loc)
        # A list index or a dictionary's own key leads to the same models.
        kinds = inner or kinds
    return list(dict.fromkeys(f.alias or name for model in kinds for name, f in model.model_fields.items()))


def _models_in(annotation: Any, loc: Sequence[_Key]) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if any(isinstance(part, Tag) and part.tag not in loc for part in get_args(annotation)):
        return []
    return [model for part in get_args(annotation) for model in _models_in(part, loc)]
