"""The Python of README.md, run as it stands against the models it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tritonkit.serve import Endpoint

ADDRESS = "127.0.0.1:8001"


def python_blocks(page: Path) -> list[str]:
    """The page's Python, one program for each block."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def shown(program: str) -> list[str]:
    """The lines that a program prints, by the comments behind its prints."""
    return re.findall(r"^ *print\(.*\)  # (.*)$", program, re.MULTILINE)


def as_shown(printed: str, line: str) -> bool:
    """Whether a printed line is the one shown; a score may be a tenth off: it depends on the machine."""
    words, expected = printed.split(), line.split()
    return len(words) == len(expected) and all(map(_alike, words, expected))


def _alike(word: str, expected: str) -> bool:
    if re.fullmatch(r"\d+\.\d+", expected):
        return abs(float(word) - float(expected)) <= 0.1 * float(expected)
    return word == expected


def test_the_readmes_python_runs_and_prints_what_it_shows(digits_server: Endpoint, project: Path) -> None:
    """Each block runs from the project's folder; its prints say what the comments behind them do."""
    blocks = python_blocks(project / "README.md")
    assert blocks
    assert any(shown(block) for block in blocks)
    for block in blocks:
        assert ADDRESS in block
        program = block.replace(ADDRESS, digits_server.grpc)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], cwd=project, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stderr) == (0, ""), block
        printed = done.stdout.splitlines()
        assert len(printed) == len(shown(block)), printed
        for line, wanted in zip(printed, shown(block), strict=True):
            assert as_shown(line, wanted), (line, wanted)
