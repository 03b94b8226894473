"""Rows of `quality.samples` in files: a folder, CSV, JSON lines, or arrays of numpy."""

from __future__ import annotations

import csv
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.modelspec import SampleFiles, Spec, resolve_file, resolve_folder
from tritonkit.text import first_line

__all__ = ["CLASS", "FILE", "TEXT", "Row", "Rows", "read_rows"]

FILE = "file"
"""The column of a folder that names its files."""
CLASS = "class"
"""The column of a folder with the names of the folders around its files."""
TEXT = "text"
"""The column of a folder with the texts next to its files."""
_TEXT_SUFFIX = ".txt"
_UNFIT_ARRAYS = (
    ValueError,
    KeyError,
    EOFError,
    AttributeError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    tokenize.TokenError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Everything that zipfile, its decompressors and numpy raise on damaged, encrypted or foreign files."""
_MOST_TEXT = 1 << 20
_MOST_TABLE = 1 << 30
"""Most bytes of a table: its rows take several times as much memory."""
_MOST_ARRAYS = 4 << 30
"""Most bytes of all arrays of an .npz file, once they are uncompressed."""


@dataclass(frozen=True)
class Row:
    """One row: its place in messages, such as `data/test.csv:12`, and its values by column."""

    place: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of one source, the names of its columns, and the folder from which cells name files."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    folder: Path


def read_rows(spec: Spec, field: str, files: SampleFiles) -> Rows:
    """All rows of the data in files.

    Raises:
        BuildError: the source has no row, or one that cannot be read.
    """
    key, source = files.source
    where = f"{spec.file} {field}.{key}"
    path = (
        resolve_folder(str(source), spec, f"{field}.{key}")
        if key == "folder"
        else resolve_file(source, spec, f"{field}.{key}")
    )
    inside = path.is_relative_to(spec.folder.resolve())
    name = path.relative_to(spec.folder.resolve()).as_posix() if inside else path.name
    try:
        if key in ("csv", "jsonl") and path.stat().st_size > _MOST_TABLE:
            raise _too_large(where, name, path.stat().st_size, _MOST_TABLE)
        rows = _READERS[key](path, name, where)
    except OSError as error:
        raise _unreadable(where, name, f"{error.strerror or error}") from None
    if not rows.rows:
        wanted = "a file in a folder for each class, or files" if key == "folder" else "at least one row"
        raise BuildError(where, found=f"{name} is empty", wanted=wanted, todo="add held-out data, or correct the path")
    return rows


def _unreadable(where: str, place: str, reason: str, wanted: str = "a readable file") -> BuildError:
    return BuildError(where, found=f"{place} cannot be read: {reason}", wanted=wanted, todo="correct it there")


def _too_large(where: str, name: str, size: int, most: int) -> BuildError:
    return BuildError(where, found=f"{name} has {size} bytes", wanted=f"at most {most}", todo="give fewer rows")


@contextmanager
def _text_errors(where: str, name: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise _unreadable(where, name, f"byte {error.start} is not UTF-8", "text in UTF-8") from None


def _read_csv(path: Path, name: str, where: str) -> Rows:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    rows: list[Row] = []
    with path.open(encoding="utf-8-sig", newline="") as stream, _text_errors(where, name):
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        columns: list[str] | None = None
        try:
            for cells in reader:
                place = f"{name}:{reader.line_num}"
                if columns is None:
                    columns = _header(cells, place, where)
                elif len(cells) != len(columns):
                    if cells:  # an empty line is no row
                        raise _unreadable(
                            where, place, f"it has {len(cells)} cells", f"{len(columns)}, as the first line"
                        )
                else:
                    rows.append(Row(place, dict(zip(columns, cells, strict=True))))
        except csv.Error as error:
            raise _unreadable(where, f"{name}:{reader.line_num}", str(error), "CSV, as RFC 4180 describes it") from None
    return Rows(name, tuple(columns or ()), rows, path.parent)


def _header(cells: list[str], place: str, where: str) -> list[str]:
    if twice := [cell for cell in cells if cells.count(cell) > 1]:
        raise _unreadable(where, place, f"two columns are called {twice[0]!r}", "a name for each column")
    return cells


def _read_jsonl(path: Path, name: str, where: str) -> Rows:
    rows: list[Row] = []
    columns: dict[str, None] = {}
    with path.open(encoding="utf-8-sig") as stream, _text_errors(where, name):
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            place = f"{name}:{number}"
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _unreadable(where, place, f"{first_line(error)}", "a JSON object on each line") from None
            if not isinstance(values, dict):
                raise _unreadable(where, place, f"it is a {type(values).__name__}", "a JSON object on each line")
            columns |= dict.fromkeys(values)
            rows.append(Row(place, values))
    return Rows(name, tuple(columns), rows, path.parent)


def _read_npz(path: Path, name: str, where: str) -> Rows:
    arrays = _arrays_of(path, name, where)
    counts = {key: array.shape[0] if array.ndim else None for key, array in arrays.items()}
    if len(set(counts.values())) > 1 or None in counts.values():
        shown = ", ".join(f"{key} {list(arrays[key].shape)}" for key in arrays)
        raise _unreadable(where, name, f"its arrays are {shown}", "the same number of rows along every first axis")
    count = next(iter(counts.values()), 0) or 0
    if empty := [key for key, array in arrays.items() if count and not array.nbytes]:
        shown = f"its array {empty[0]} {list(arrays[empty[0]].shape)} has rows without values"
        raise _unreadable(where, name, shown, "at least one value in each row")
    rows = [Row(f"{name}, row {index}", {key: array[index] for key, array in arrays.items()}) for index in range(count)]
    return Rows(name, tuple(arrays), rows, path.parent)


def _arrays_of(path: Path, name: str, where: str) -> dict[str, Any]:
    """The arrays of an .npz file, none of which is read before all are known to fit."""
    import numpy as np

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _MOST_ARRAYS:
            raise _too_large(where, name, size, _MOST_ARRAYS)
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except _UNFIT_ARRAYS as error:
        wanted = "an .npz file of numpy.savez without Python objects: texts as arrays of str"
        raise _unreadable(where, name, first_line(error) or type(error).__name__, wanted) from None


def _read_folder(path: Path, name: str, where: str) -> Rows:
    """Files in folders of their classes, in turns, so that the first of them are of all classes; or files with texts
    next to them."""
    folders = [folder for folder in _listed(path) if folder.is_dir()]
    if {folder.name for folder in folders} == {"images", "labels"}:
        return _with_texts(path / "images", path / "labels", name, where)
    if not folders:
        return _with_texts(path, path, name, where)
    files = [[file for file in _listed(folder) if file.is_file()] for folder in folders]
    for folder, own in zip(folders, files, strict=True):
        if not own:
            raise BuildError(
                where,
                found=f"{name}/{folder.name} is empty",
                wanted="files of the class",
                todo="add some, or remove it",
            )
    turns = (group[turn] for turn in range(max(map(len, files))) for group in files if turn < len(group))
    rows = [
        Row(
            f"{name}/{file.parent.name}/{file.name}", {FILE: f"{file.parent.name}/{file.name}", CLASS: file.parent.name}
        )
        for file in turns
    ]
    return Rows(name, (FILE, CLASS), rows, path)


def _with_texts(path: Path, texts: Path, name: str, where: str) -> Rows:
    files = [file for file in _listed(path) if file.is_file() and (path != texts or file.suffix != _TEXT_SUFFIX)]
    rows: list[Row] = []
    columns: tuple[str, ...] = (FILE,)
    pairs = [(file, texts / f"{file.stem}{_TEXT_SUFFIX}") for file in files]
    if links := [text for _, text in pairs if text.is_symlink()]:
        raise _unreadable(where, f"{name}/{links[0].name}", "it is a link", "a file of the folder itself")
    if any(text.is_file() for _, text in pairs):
        columns += (TEXT,)
    for file, text in pairs:
        values = {FILE: file.relative_to(texts.parent if path != texts else path).as_posix()}
        place = f"{name}/{values[FILE]}"
        if TEXT in columns and path != texts and not text.is_file():
            values[TEXT] = ""  # an image without objects
        elif TEXT in columns:
            if not text.is_file():
                raise BuildError(
                    where,
                    found=f"{place} has no {text.name}",
                    wanted="a text for each file, or for none",
                    todo="add it",
                )
            if text.stat().st_size > _MOST_TEXT:
                raise _too_large(where, f"{name}/{text.name}", text.stat().st_size, _MOST_TEXT)
            with _text_errors(where, f"{name}/{text.name}"):
                values[TEXT] = text.read_text("utf-8").strip()
        rows.append(Row(place, values))
    return Rows(name, columns, rows, texts.parent if path != texts else path)


def _listed(folder: Path) -> list[Path]:
    """The paths in a folder, by name, without hidden files and links."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and not path.is_symlink()]


_READERS = {"csv": _read_csv, "jsonl": _read_jsonl, "npz": _read_npz, "folder": _read_folder}
