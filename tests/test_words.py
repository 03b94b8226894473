"""Docstrings, comments, help texts and messages are plain English: a word list, and first words of docstrings.

`python -m tests.test_words FILE_OR_FOLDER ...` prints the places that are not.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PLAIN = [
    "examples",
    "models/digits",
    "models/resnet50",
    "models/sentences/texts.py",
    "models/story",
    "python_backends/backends",
    "python_backends/environment.py",
    "python_backends/site",
    "python_backends/steps",
    "src/tritonkit/client",
    "src/tritonkit/datatypes.py",
    "src/tritonkit/disk.py",
    "src/tritonkit/errors.py",
    "src/tritonkit/extras.py",
    "src/tritonkit/limits.py",
    "src/tritonkit/machine.py",
    "src/tritonkit/moved.py",
    "src/tritonkit/openai",
    "src/tritonkit/releases.py",
    "src/tritonkit/repository/export",
    "src/tritonkit/repository/inspection.py",
    "src/tritonkit/repository/modelspec",
    "src/tritonkit/repository/optimize",
    "src/tritonkit/repository/pipeline.py",
    "src/tritonkit/repository/publish",
    "src/tritonkit/repository/render",
    "src/tritonkit/repository/report",
    "src/tritonkit/repository/scaffold",
    "src/tritonkit/resources.py",
    "src/tritonkit/testing.py",
    "src/tritonkit/text.py",
    "src/tritonkit/watched.py",
    "tests/models",
    "tests/python_backends",
    "tests/repository/modelspec",
    "tests/repository/publish",
    "tests/repository/render",
    "tests/repository/report",
    "tests/repository/test_scaffold.py",
    "tests/repository/export",
    "tests/repository/optimize",
]
"""Folders and files, below the project's, that were rewritten. All others are still to be."""

INSTEAD = {
    r"beside": "next to, in addition to, compared with",
    r"at once": "immediately, or concurrently, or together",
    r"so (many|much|few|young|often)(?! (that|as))": "the number, or a given number",
    r"anew": "again",
    r"amid": "during",
    r"mend(s|ed)?": "fix",
    r"asked for": "requested",
    r"who(m|so)?ever": "a noun: the caller, the process that ...",
    r"alike": "in the same way, both",
    r"in vain": "without success",
    r"thereof|thereby|therein|wherein": "whole words",
    r"(that|it|this) (is|was) no": "that is not a",
    r"let go of": "drop, release",
    r"for it is": "because it is",
    r"as it is told": "as configured",
}
"""Words that read as translated, as patterns, and plain ones."""

HEADLESS = {"What", "Who", "Whom", "Whose", "Of", "Where", "Which", "How", "Why", "By", "As", "Those", "Such", "So"}
"""First words of docstrings that lack their noun."""


def _documented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings, also those below constants and fields, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def _written(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, with their lines; the words of an f-string too."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


def awkward(file: Path) -> list[str]:
    """Places of a module that are not plain, each with the reason."""
    text = file.read_text("utf-8")
    places = [
        f"{file}:{line}: a docstring begins with {words.split()[0]!r}; name its subject"
        for line, words in _documented(ast.parse(text))
        if words.split() and words.split()[0] in HEADLESS
    ]
    for line, words in _written(text):
        for pattern, plain in INSTEAD.items():
            if match := re.search(rf"(?i)\b({pattern})\b", re.sub(r"\s+", " ", words)):
                places.append(f"{file}:{line}: {match[0]!r}; write: {plain}")
    return places


@pytest.mark.parametrize("place", PLAIN)
def test_words_are_plain(place: str, project: Path) -> None:
    """A folder that was rewritten stays so."""
    path = project / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files, "it has moved"
    assert [line for file in files for line in awkward(file)] == []


def test_the_list_finds_what_it_is_for(tmp_path: Path) -> None:
    """A headless docstring, a comment and a message each count once."""
    file = tmp_path / "module.py"
    file.write_text('"""What it is."""\n\n# Beside it.\nX = "all at once"\n"""Its docstring."""\n')
    assert [line.split(": ", 1)[0].rsplit(":", 1)[1] for line in awkward(file)] == ["1", "3", "4"]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for module in [Path(name)] if Path(name).is_file() else sorted(Path(name).rglob("*.py")):
            sys.stdout.writelines(f"{line}\n" for line in awkward(module))
