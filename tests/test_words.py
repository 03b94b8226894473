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
    "bench",
    "deploy",
    "examples",
    "loadtest",
    "models/digits",
    "models/resnet50",
    "models/sentences/texts.py",
    "models/story",
    "python_backends/backends",
    "python_backends/environment.py",
    "python_backends/server_kinds.py",
    "python_backends/server_packages.py",
    "python_backends/server_python.py",
    "python_backends/site",
    "python_backends/steps",
    "src/tritonkit/cli",
    "src/tritonkit/client",
    "src/tritonkit/datatypes.py",
    "src/tritonkit/disk.py",
    "src/tritonkit/errors.py",
    "src/tritonkit/extras.py",
    "src/tritonkit/limits.py",
    "src/tritonkit/machine.py",
    "src/tritonkit/moved.py",
    "src/tritonkit/openai",
    "src/tritonkit/operate/certificates.py",
    "src/tritonkit/operate/commands",
    "src/tritonkit/operate/deploy",
    "src/tritonkit/operate/gateway",
    "src/tritonkit/operate/keys.py",
    "src/tritonkit/operate/limiter",
    "src/tritonkit/operate/observe",
    "src/tritonkit/operate/release",
    "src/tritonkit/operate/stack",
    "src/tritonkit/operate/store",
    "src/tritonkit/option.py",
    "src/tritonkit/perf/commands",
    "src/tritonkit/perf/diagnose",
    "src/tritonkit/perf/load",
    "src/tritonkit/perf/plan",
    "src/tritonkit/perf/simulation",
    "src/tritonkit/perf/tune",
    "src/tritonkit/releases.py",
    "src/tritonkit/repository/commands",
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
    "src/tritonkit/serve/__init__.py",
    "src/tritonkit/serve/calls.py",
    "src/tritonkit/serve/checks.py",
    "src/tritonkit/serve/command.py",
    "src/tritonkit/serve/commands",
    "src/tritonkit/serve/compose.py",
    "src/tritonkit/serve/core",
    "src/tritonkit/serve/install.py",
    "src/tritonkit/serve/libpython.py",
    "src/tritonkit/serve/loads.py",
    "src/tritonkit/serve/log.py",
    "src/tritonkit/serve/managed.py",
    "src/tritonkit/serve/manifests.py",
    "src/tritonkit/serve/ports.py",
    "src/tritonkit/serve/process.py",
    "src/tritonkit/serve/proxies.py",
    "src/tritonkit/serve/ready.py",
    "src/tritonkit/serve/repository.py",
    "src/tritonkit/serve/rpc.py",
    "src/tritonkit/serve/runs.py",
    "src/tritonkit/serve/selection.py",
    "src/tritonkit/serve/server.py",
    "src/tritonkit/serve/shm.py",
    "src/tritonkit/serve/start.py",
    "src/tritonkit/serve/users_runs.py",
    "src/tritonkit/serve/values.py",
    "src/tritonkit/serve/warm.py",
    "src/tritonkit/serve/without.py",
    "src/tritonkit/testing.py",
    "src/tritonkit/text.py",
    "src/tritonkit/watched.py",
    "tests/bench",
    "tests/cli",
    "tests/docker",
    "tests/hostile",
    "tests/loadtest",
    "tests/models",
    "tests/native",
    "tests/openai",
    "tests/operate",
    "tests/perf",
    "tests/python_backends",
    "tests/repository/export",
    "tests/repository/modelspec",
    "tests/repository/optimize",
    "tests/repository/publish",
    "tests/repository/render",
    "tests/repository/report",
    "tests/repository/scaffold",
    "tests/serve",
    "tests/server/backends",
    "tests/server/bench",
    "tests/server/clients",
    "tests/server/examples",
    "tests/server/guard",
    "tests/server/language",
    "tests/server/load",
    "tests/server/own",
    "tests/server/shared",
    "tests/server/stacks",
    "tests/server/tune",
    "tests/[!t]*.py",
    "tests/test_[!w]*.py",
    "tests/tools",
    "tools",
]
"""Folders, files and patterns of files, below the project's folder, that were rewritten."""

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
    paths = sorted(project.glob(place))
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
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
