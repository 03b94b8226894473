"""The content of PyTorch's files, seen without loading them: they are ZIP archives, and some run code."""

from __future__ import annotations

import contextlib
import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritonkit.errors import SpecError
from tritonkit.repository.optimize.files.ready import Place

__all__ = ["Archive", "Pickled", "pickled"]

_MOST_JSON = 64 << 20
_TENSORS = re.compile(r"(collections OrderedDict|torch\._utils _rebuild_\w+|torch \w+Storage|torch\.\w+ \w+Storage)$")
"""Globals in a pickle of weights alone, as pickletools names them."""
_UNKNOWN = "?"


class Archive:
    """The names and the small files of an archive; its weights are not read."""

    def __init__(self, place: Place) -> None:
        self._place = place
        with self._whole(), zipfile.ZipFile(place.path) as archive:
            paths = archive.namelist()
            if min((info.header_offset for info in archive.infolist()), default=0) > 0:
                # Of a file that is cut off, zipfile finds the end of an archive within it.
                raise zipfile.BadZipFile("it has bytes in front of its first file")
        # All lies in one folder, which has the name that the file once had.
        self._root = paths[0].partition("/")[0] + "/" if paths and "/" in paths[0] else ""
        if len(set(paths)) < len(paths) or not all(path.startswith(self._root) for path in paths):
            raise SpecError(
                place.where,
                found=f"{place.name} has two files of one name, or files out of its own folder",
                wanted="an archive as PyTorch wrote it",
                todo="save it again",
            )

        self.names = [path.removeprefix(self._root) for path in paths]
        """The names inside of the archive's own folder."""

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except SpecError:
            raise
        except Exception as error:  # those of zipfile and its decompressors have no common root
            raise SpecError(
                self._place.where,
                found=f"{self._place.name} is not a whole archive: {error}",
                wanted="a file as PyTorch wrote it",
                todo="copy it again",
            ) from error

    def has(self, start: str) -> bool:
        """Whether a name begins so."""
        return any(name.startswith(start) for name in self.names)

    def read(self, name: str) -> bytes:
        """A small file's content; SpecError if it is large."""
        with self._whole(), zipfile.ZipFile(self._place.path) as archive:
            info = archive.getinfo(self._root + name)
            if info.file_size > _MOST_JSON:
                raise SpecError(
                    self._place.where,
                    found=f"{name} in {self._place.name} has {info.file_size} bytes",
                    wanted=f"at most {_MOST_JSON >> 20} MiB: it is text",
                )
            return archive.read(info)

    @contextlib.contextmanager
    def as_written(self) -> Iterator[None]:
        """SpecError where the archive's JSON is not what the block takes it for."""
        try:
            yield
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise SpecError(
                self._place.where,
                found=f"the JSON in {self._place.name} does not describe a program: {type(error).__name__}: {error}",
                wanted="a program, as torch.export.save of PyTorch 2.8 or newer writes it",
                todo="export it again: torch.export.save(program, FILE)",
            ) from error

    def read_json(self, name: str) -> Any:
        """A small file's value; called within `as_written`."""
        return json.loads(self.read(name))


@dataclass(frozen=True)
class Pickled:
    """The content of a pickle in words, and whether reading it would import other classes than those of tensors."""

    words: str
    runs_code: bool


def pickled(content: bytes) -> Pickled:
    """The content of a pickle; nothing of it is loaded."""
    names = list(_globals(content))
    others = [name for name in names if not _TENSORS.fullmatch(name)]
    if others:
        of = "" if _UNKNOWN in others else f" of {others[0].replace(' ', '.')}"
        return Pickled(f"a pickle{of}, which runs code where it is read", True)
    return Pickled("weights without a network (a state_dict)", False)


def _globals(content: bytes) -> Iterator[str]:
    """`module name` of everything that a pickle imports; `_UNKNOWN` for a name on its stack."""
    try:
        for operation, argument, _ in pickletools.genops(io.BytesIO(content)):
            if operation.name in ("GLOBAL", "INST"):
                yield str(argument)
            elif operation.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
                yield _UNKNOWN  # torch.save writes none of these
    except (ValueError, IndexError, UnicodeDecodeError):
        yield _UNKNOWN
