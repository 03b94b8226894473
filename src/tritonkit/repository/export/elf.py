"""Reads the header and the dynamic symbols of a shared library (ELF, 64 bits), without loading it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MACHINES", "SharedLibrary", "read_library"]

MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
"""`e_machine` of a file -> the kind of processor, as `platform.machine` names it; all have the low byte first."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ENTRY = struct.Struct("<qQ")
_SHARED, _SYMBOLS, _DYNAMIC, _NEEDED = 3, 11, 6, 1
_MOST_BYTES = 64 << 20
"""Most bytes of a table of symbols or of their names; a larger one is not read."""
_LONGEST = 256
"""Bytes of a name that are read: longer ones are those of C++, and only their beginnings are looked at."""


@dataclass(frozen=True)
class SharedLibrary:
    """Facts about a shared library.

    Args:
        machine: the kind of processor that it is for.
        defined: names of the symbols that it has; None if the table cannot be read.
        undefined: names of the symbols that another library has to have.
        needed: names of the libraries that are loaded with it.
    """

    machine: str
    defined: frozenset[str] | None = None
    undefined: frozenset[str] = frozenset()
    needed: tuple[str, ...] = ()


def read_library(file: Path) -> SharedLibrary | None:
    """The facts about a file; None if it is not a shared library."""
    with file.open("rb") as stream:
        head = stream.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(b"\x7fELF\x02\x01"):
            return None
        _, kind, machine, _, _, _, start, _, _, _, _, size, count, _ = _HEADER.unpack(head)
        if kind != _SHARED:
            return None
        name = MACHINES.get(machine, f"the processor {machine} of ELF")

        def part(place: int, length: int) -> bytes:
            if length > _MOST_BYTES:
                return b""
            stream.seek(place)
            return stream.read(length)

        try:
            sections = [_SECTION.unpack(part(start + size * place, _SECTION.size)) for place in range(count)]
            table = next((section for section in sections if section[1] == _SYMBOLS), None)
            if table is None:
                return SharedLibrary(name)
            names = part(*sections[table[6]][4:6])
            symbols = list(_SYMBOL.iter_unpack(part(*table[4:6])))
            dynamic = next((part(*section[4:6]) for section in sections if section[1] == _DYNAMIC), b"")
            needed = [_text(names, value) for tag, value in _ENTRY.iter_unpack(dynamic) if tag == _NEEDED]
        except (struct.error, IndexError, OSError, OverflowError, ValueError):
            return SharedLibrary(name)  # damaged: the loader of libraries has the last word
    named = [(_text(names, symbol[0]), symbol[3] != 0) for symbol in symbols]
    return SharedLibrary(
        name,
        frozenset(text for text, is_here in named if text and is_here),
        frozenset(text for text, is_here in named if text and not is_here),
        tuple(needed),
    )


def _text(names: bytes, place: int) -> str:
    return names[place : place + _LONGEST].partition(b"\0")[0].decode(errors="replace")
