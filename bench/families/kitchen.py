"""Pages of docs/cookbook, run as a reader does: files are written, commands run, answers compared.

A block whose first line is a comment with a path is a file of the project; in a `diff` block, lines of that file that
others replace. Each line of an `sh` block is a command.
Other `python` blocks are programs. A `text` block is the output of the program or command before it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tritonkit.errors import BuildError, UsageError
from tritonkit.serve import Endpoint, serve

__all__ = ["PAGES", "Kitchen", "Page", "kitchen"]

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "cookbook"
ADDRESS = "127.0.0.1:8001"
"""The address in the pages; a test's server has another."""
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"# ([\w./-]+\.\w+)\n")
_CHANGE = re.compile(r"((?:^-.*\n)+)((?:^\+.*\n)+)", re.MULTILINE)
_PREPARED = ("pip ", "hf ", "yolo ", "tritonkit server install")
"""Commands whose result is put in place beforehand: installed packages and downloaded files."""
_LONGEST_S = 600


@dataclass(frozen=True)
class Page:
    """A page: its blocks in order, each with its language."""

    name: str
    blocks: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, name: str) -> Page:
        """The page of this name."""
        found = _BLOCK.findall((FOLDER / f"{name}.md").read_text())
        return cls(name, tuple(found))

    @property
    def lines(self) -> int:
        """Lines of YAML and Python that a reader writes, without empty ones and names of files."""
        return sum(
            bool(line.strip()) and not _PATH.match(f"{line}\n") and not (language == "diff" and line.startswith("-"))
            for language, text in self.blocks
            if language in ("yaml", "python", "diff")
            for line in text.splitlines()
        )

    def before(self, command: str) -> Page:
        """The blocks before the first one that begins with this command."""
        first = [text.startswith(command) for _, text in self.blocks].index(True)
        return Page(self.name, self.blocks[:first])


@dataclass
class Kitchen:
    """A project in which a page was run up to its last block, with the server that the page started."""

    folder: Path
    environment: Mapping[str, str]
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    ahead: dict[str, bytes] = field(default_factory=dict)
    """Files that a reader has: they are in place before the first build."""
    http: bool = False
    """Whether the server answers over HTTP too."""
    endpoint: Endpoint | None = None
    output: str = ""
    seconds: list[tuple[str, float]] = field(default_factory=list)
    """The time that each command and program took."""

    def cook(self, page: Page) -> None:
        """Run all blocks in their order."""
        for language, text in page.blocks:
            path = _PATH.match(text)
            if path and language != "sh":
                file = self.folder / path[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(changed(file.read_text(), text) if language == "diff" else text)
            elif language == "sh":
                for line in text.splitlines():
                    with self._timed(line):
                        self.command(line)
            elif language == "python":
                with self._timed("the program"):
                    self.output = self.run(sys.executable, "-c", self._here(text))
            elif language == "text":
                self.compare(text)

    def command(self, line: str) -> None:
        """Run one line, unless its result is in place.

        Raises:
            BuildError: it fails.
        """
        if line.startswith((*_PREPARED, "#")) or not line:
            return
        words = shlex.split(line)
        if words[1] == "build":
            for name, data in self.ahead.items():
                (self.folder / name).write_bytes(data)
        if words == ["tritonkit", "serve", "&"]:
            self.endpoint = self.stack.enter_context(
                serve(
                    self.folder / "model_repository",
                    grpc_port=0,
                    http_port=0,
                    metrics_port=0,
                    root=self.folder,
                    http=self.http,
                )
            )
            return
        if words[0] != "tritonkit":
            raise UsageError("a page of the cookbook", found=line, wanted="a command of tritonkit")
        address = ["--address", self.address] if words[1] == "call" else []
        self.output = self.run(sys.executable, "-m", "tritonkit.cli", *words[1:], *address)

    def run(self, *command: str) -> str:
        """The output of a program that ends well."""
        made = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )
        if made.returncode:
            raise BuildError(
                shlex.join(command),
                found=f"it ended with exit code {made.returncode}",
                details=f"{made.stdout}{made.stderr}",
            )
        return made.stdout

    def compare(self, text: str) -> None:
        """Hold the last output against this text; `...` in it is any text.

        Raises:
            BuildError: it is another text.
        """
        pattern = ".*".join(re.escape(part) for part in text.strip().split("..."))
        if not re.fullmatch(pattern, self.output.strip(), re.DOTALL):
            raise BuildError("the output of a page", found=self.output, wanted=text)

    @property
    def address(self) -> str:
        """The server's address."""
        if self.endpoint is None:
            raise UsageError("a page of the cookbook", found="no server", wanted="tritonkit serve & before a call")
        return self.endpoint.grpc

    @property
    def http_address(self) -> str:
        """The same over HTTP, if `http` was set."""
        return self.endpoint.http if self.endpoint else ""

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.seconds.append((name, time.monotonic() - begin))

    def _here(self, program: str) -> str:
        return program.replace(ADDRESS, self.address) if ADDRESS in program else program


def changed(text: str, difference: str) -> str:
    """A file's text in which lines that begin with `-` are replaced by the lines with `+` after them.

    Raises:
        UsageError: the file does not have them exactly once, or there are other lines than these.
    """
    if not _PATH.fullmatch(_CHANGE.sub("", difference)):
        raise UsageError(
            "a page of the cookbook", found=difference, wanted="a path, then lines with - and those with +"
        )
    for old, new in _CHANGE.findall(difference):
        before, after = (re.sub("^[-+]", "", lines, flags=re.MULTILINE) for lines in (old, new))
        if text.count(before) != 1:
            raise UsageError("a page of the cookbook", found=f"{text.count(before)} times: {before}", wanted="once")
        text = text.replace(before, after)
    return text


@contextlib.contextmanager
def kitchen(folder: Path, **environment: str) -> Iterator[Kitchen]:
    """A place for a page; its server ends with the block."""
    made = Kitchen(folder, environment)
    with made.stack:
        yield made
