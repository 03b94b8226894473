"""Files with the weights of an ONNX file (ONNX's "external data"): find them, and check that they may be read.

A location is text in the ONNX file, which may come from anywhere. So each location is checked before any library
follows it: its file must lie in the ONNX file's own folder and be as long as its tensors say.
"""

from __future__ import annotations

import math
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need

__all__ = ["MAX_WEIGHT_BYTES", "data_files", "flat_names", "locations", "relocate", "resolved_in_place", "save_apart"]

MAX_WEIGHT_BYTES = 2**31 - 2**26
"""Weights within one ONNX file. A protobuf message is smaller than 2 GiB; 64 MiB are left for the graph."""

_ITEMS_PER_BYTE = {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_DATA = {
    ".json",
    ".onnx",
    ".pbtxt",
    ".plan",
    ".pt",
    ".pt2",
    ".py",
    ".pyc",
    ".so",
    ".tflite",
    ".xml",
    ".yaml",
    ".yml",
}
"""File endings with a meaning in a model's folder or in a version folder."""


def locations(tensors: Iterator[Any]) -> tuple[str, ...]:
    """The distinct locations that tensors name, in the order of the file."""
    return tuple(dict.fromkeys(_entries(t)["location"] for t in tensors if t.external_data))


def data_files(tensors: Iterator[Any], file: Path, where: str) -> dict[str, Path]:
    """Location -> the regular file that it names, for the tensors of the ONNX file `file`.

    BuildError for the first location that leads elsewhere, or whose file is shorter than its tensors need.
    """
    files: dict[str, Path] = {}
    for tensor in tensors:
        if not tensor.external_data:
            continue
        entries = _entries(tensor)
        location = entries["location"]
        if location not in files:
            files[location] = _resolved(location, file, where)
        _check_extent(tensor, entries, files[location], where)
    return files


def flat_names(locations: Collection[str], main: str) -> dict[str, str]:
    """Location -> the name under which its file lies next to an ONNX file called `main`.

    A plain name stays. A name with folders, with odd characters or with the ending of another kind of file
    becomes `main.data`, `main.1.data` and so on.
    """
    stay = {location for location in locations if _is_plain(location) and location != main}
    taken = {name.lower() for name in stay} | {main.lower()}
    numbered = (f"{main}.{number}.data" for number in count(1))
    free = (name for name in chain([f"{main}.data"], numbered) if name.lower() not in taken)
    return {location: location if location in stay else next(free) for location in locations}


def relocate(tensors: Iterator[Any], names: Mapping[str, str]) -> bool:
    """Write new locations into the tensors of a model; return whether any changed."""
    changed = False
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location" and names[entry.value] != entry.value:
                entry.value = names[entry.value]
                changed = True
    return changed


@contextmanager
def resolved_in_place(file: Path, files: Mapping[str, Path]) -> Iterator[Path]:
    """The ONNX file for onnx's checker, which refuses data files that are links. If there are links, it is a copy
    next to empty files of the same names and sizes."""
    if not any(_has_link(file.parent, location) for location in files):
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        shutil.copyfile(file, copy)
        for location, path in files.items():
            stand_in = Path(folder) / location
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            with stand_in.open("wb") as stream:
                stream.truncate(path.stat().st_size)
        yield copy


def save_apart(model: Any, file: Path) -> None:
    """Write a model whose weights are too large for one file, with the large ones in `file.data` next to it.

    The model in memory stays as it is: its weights are read back from there.
    """
    onnx = need("onnx", "build")
    onnx.save(model, file, save_as_external_data=True, location=f"{file.name}.data", size_threshold=1024)
    onnx.load_external_data_for_model(model, str(file.parent))


def _entries(tensor: Any) -> dict[str, str]:
    return {"location": ""} | {entry.key: entry.value for entry in tensor.external_data}


def _is_plain(location: str) -> bool:
    return bool(_PLAIN.fullmatch(location)) and PurePosixPath(location).suffix.lower() not in _NOT_DATA


def _has_link(folder: Path, location: str) -> bool:
    parts = PurePosixPath(location).parts
    return any((folder / Path(*parts[: i + 1])).is_symlink() for i in range(len(parts)))


def _resolved(location: str, file: Path, where: str) -> Path:
    """The file of a location. Links may lead to another place in the ONNX file's own folder. If the ONNX file itself
    is a link, they may also lead into its target's folder, as in the cache of Hugging Face."""
    parts = PurePosixPath(location).parts
    if not parts or location.startswith("/") or ".." in parts or "\0" in location:
        raise _refused(file, where, location, "which is not a path in its own folder")
    try:
        path = (file.parent / location).resolve()
        state = path.stat()
    except FileNotFoundError:
        raise _refused(
            file, where, location, f"and {file.parent} has no such file", "copy that file, too: the two belong together"
        ) from None
    except (OSError, RuntimeError) as error:  # a name too long, a link that leads to itself
        reason = getattr(error, "strerror", None) or error
        raise _refused(file, where, location, f"which cannot be read: {reason}") from None
    homes = (file.parent.resolve(), file.resolve().parent)
    if not any(path.is_relative_to(home) for home in homes):
        raise _refused(
            file,
            where,
            location,
            f"a link that leads out of {file.parent}",
            f"copy it in place of the link: cp --remove-destination {path} {file.parent / location}",
        )
    if not stat.S_ISREG(state.st_mode):
        raise _refused(file, where, location, "which is not a regular file")
    if path == file.resolve():
        raise _refused(file, where, location, "which is the ONNX file itself")
    return path


def _check_extent(tensor: Any, entries: Mapping[str, str], path: Path, where: str) -> None:
    """Check that offset and length lie within the file and fit dtype and shape."""
    size = path.stat().st_size
    needed = _needed_bytes(tensor, where)
    numbers = {key: entries.get(key) or "0" for key in ("offset", "length")}
    for key, text in numbers.items():
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise _bad_tensor(tensor, where, f"its {key} is {text[:40]!r}", "a number of bytes")
    offset, length = int(numbers["offset"]), int(numbers["length"])
    if length and length != needed:
        raise _bad_tensor(tensor, where, f"its length is {length} bytes", f"{needed} bytes, as its shape needs")
    if offset + needed > size:
        raise _bad_tensor(
            tensor,
            where,
            f"{path.name} has {size} bytes",
            f"at least {offset + needed}: {needed} bytes at offset {offset}",
            "copy that file again: a truncated download looks like this",
        )


def _needed_bytes(tensor: Any, where: str) -> int:
    """Bytes that a tensor's dtype and shape need."""
    onnx = need("onnx", "build")
    kinds = onnx.TensorProto.DataType
    kind = kinds.Name(tensor.data_type) if tensor.data_type in kinds.values() else "UNDEFINED"
    if kind in ("STRING", "UNDEFINED") or any(size < 0 for size in tensor.dims):
        raise _bad_tensor(tensor, where, f"dtype {kind}, shape {list(tensor.dims)}", "numbers of a known type")
    items = math.prod(int(size) for size in tensor.dims)
    if kind in _ITEMS_PER_BYTE:
        return -(-items // _ITEMS_PER_BYTE[kind])
    itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return items * itemsize


def _refused(file: Path, where: str, location: str, found: str, todo: str = "") -> BuildError:
    return BuildError(
        where,
        found=f"{file.name} keeps weights in {location[:120]!r}, {found}",
        wanted="regular files in the folder of the ONNX file, or below it",
        todo=todo or f"write it again: onnx.save(onnx.load('{file.name}'), 'single.onnx')",
    )


def _bad_tensor(tensor: Any, where: str, found: str, wanted: str, todo: str = "") -> BuildError:
    return BuildError(
        where,
        found=f"the weights {tensor.name[:80]!r} lie in another file, and {found}",
        wanted=wanted,
        todo=todo or "export the network again",
    )
