"""Pages of docs/cookbook, run as a reader does: files are written, commands run, answers compared.

A block whose first line is a comment with a path is a file of the project. Each line of an `sh` block is a command.
Other `python` blocks are programs. A `text` block is the output of the program or command before it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.parts import PROJECT
from tritonkit.serve import Endpoint, serve

__all__ = ["Kitchen", "Page", "kitchen"]

FOLDER = PROJECT / "docs" / "cookbook"
ADDRESS = "127.0.0.1:8001"
"""The address in the pages; a test's server has another."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"# ([\w./-]+\.\w+)\n")
_PREPARED = ("pip ", "hf ", "yolo ", "tritonkit server install")
"""Commands whose result a test puts in place: installed packages and downloaded files."""
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
            bool(line.strip()) and not _PATH.match(f"{line}\n")
            for language, text in self.blocks
            if language in ("yaml", "python")
            for line in text.splitlines()
        )


@dataclass
class Kitchen:
    """A project in which a page was run up to its last block, with the server that the page started."""

    folder: Path
    environment: Mapping[str, str]
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    ahead: dict[str, bytes] = field(default_factory=dict)
    """Files that a reader has: they are in place before the first build."""
    endpoint: Endpoint | None = None
    output: str = ""

    def cook(self, page: Page) -> None:
        """Run all blocks in their order."""
        for language, text in page.blocks:
            path = _PATH.match(text)
            if path and language != "sh":
                file = self.folder / path[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            elif language == "sh":
                for line in text.splitlines():
                    self.command(line)
            elif language == "python":
                self.output = self.run(sys.executable, "-c", self._here(text))
            elif language == "text":
                self.compare(text)

    def command(self, line: str) -> None:
        """Run one line, unless the test has done it."""
        if line.startswith((*_PREPARED, "#")) or not line:
            return
        words = shlex.split(line)
        if words[1] == "build":
            for name, data in self.ahead.items():
                (self.folder / name).write_bytes(data)
        if words == ["tritonkit", "serve", "&"]:
            self.endpoint = self.stack.enter_context(
                serve(self.folder / "model_repository", grpc_port=0, http_port=0, metrics_port=0, root=self.folder)
            )
            return
        assert words[0] == "tritonkit", f"a page runs tritonkit alone, not {line}"
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
        assert made.returncode == 0, f"{shlex.join(command)}\n{made.stdout}{made.stderr}"
        return made.stdout

    def compare(self, text: str) -> None:
        """The last output is this text; `...` in it is any text."""
        pattern = ".*".join(re.escape(part) for part in text.strip().split("..."))
        assert re.fullmatch(pattern, self.output.strip(), re.DOTALL), f"wanted:\n{text}\nfound:\n{self.output}"

    @property
    def address(self) -> str:
        """The server's address."""
        assert self.endpoint is not None, "the page has not started a server"
        return self.endpoint.grpc

    def _here(self, program: str) -> str:
        return program.replace(ADDRESS, self.address) if ADDRESS in program else program


@contextlib.contextmanager
def kitchen(folder: Path, **environment: str) -> Iterator[Kitchen]:
    """A place for a page; its server ends with the block."""
    made = Kitchen(folder, environment)
    with made.stack:
        yield made
