"""Sentences of real prose that every Python carries: its license, its reference, its docstrings.

They are found at run time and chosen by their hashes, so that Pythons of other versions, whose texts differ in places,
still choose mostly the same ones.
"""

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

MODULES = (  # pure Python, with much to say
    "configparser",
    "difflib",
    "heapq",
    "queue",
    "random",
    "sched",
    "shutil",
    "smtplib",
    "socket",
    "statistics",
    "tempfile",
    "textwrap",
    "threading",
    "timeit",
    "uuid",
)
LIBRARY = Path(sysconfig.get_path("stdlib"))
LENGTHS = (40, 300)  # characters
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
# One capitalized sentence of words: no code, no tables, and no markup, which versions write differently.
PROSE = re.compile(r"[A-Z][a-z]*,?(?:[ -]\(?[A-Za-z]+(?:'[a-z]+)?\)?[,;:]?){5,}[.!?]")


def choose(start: int, stop: int) -> list[str]:
    """Sentences `start` to `stop`: the license's, then the others, each in the order of their SHA-256.

    ValueError if this Python has too few.
    """
    terms = _sentences(_license())
    texts = terms + [s for s in _sentences(_documentation()) if s not in terms]
    if len(texts) < stop:
        raise ValueError(f"this Python carries {len(texts)} sentences of prose, wanted {stop}")
    return texts[start:stop]


def _sentences(texts: Iterable[str]) -> list[str]:
    low, high = LENGTHS
    sentences = {
        sentence
        for text in texts
        for paragraph in re.split(r"\n\s*\n", text)
        for sentence in END.split(" ".join(paragraph.split()))
        if low <= len(sentence) <= high and PROSE.fullmatch(sentence)
    }
    return sorted(sentences, key=lambda sentence: hashlib.sha256(sentence.encode()).digest())


def _license() -> Iterator[str]:
    file = LIBRARY / "LICENSE.txt"
    if file.is_file():  # a few distributions leave it out
        yield file.read_text(encoding="utf-8")


def _documentation() -> Iterator[str]:
    from pydoc_data.topics import topics  # the language reference, as help() shows it

    yield from topics.values()
    for file in (LIBRARY / f"{name}.py" for name in MODULES):
        if file.is_file():
            yield from _docstrings(file.read_text(encoding="utf-8"))


def _docstrings(source: str) -> Iterator[str]:
    """Docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text
