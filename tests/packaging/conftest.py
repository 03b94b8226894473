"""What users install: the wheel, built from the source distribution, in fresh environments of a chosen Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PYTHON = os.environ.get("PACKAGING_PYTHON") or getattr(sys, "_base_executable", sys.executable)
"""What the environments are made with; `make release-check` runs all this with each Python that is promised."""

_OURS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "TRITONKIT_SERVER_VENV")


@dataclass(frozen=True)
class Environment:
    """A virtual environment, the folder that commands run in, and where they find other programs."""

    folder: Path
    cwd: Path
    path: str = os.environ["PATH"]

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return next(self.folder.glob("lib/python3*/site-packages"))

    def variables(self) -> dict[str, str]:
        """As in a shell where it is activated, with a cache folder of the test's own."""
        env = {key: value for key, value in os.environ.items() if key not in _OURS}
        env["PATH"] = f"{self.folder / 'bin'}:{self.path}"
        return env | {"XDG_CACHE_HOME": str(self.cwd.parent / "cache")}

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A program of the environment; it must end with this exit code."""
        done = subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.cwd,
            env=self.variables(),
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done


def make_environment(folder: Path, cwd: Path, *packages: str) -> Environment:
    """A fresh one with these packages from the package index."""
    subprocess.run([PYTHON, "-m", "venv", str(folder)], check=True)
    made = Environment(folder, cwd)
    made.run("python", "-m", "pip", "install", "--quiet", *packages)
    return made


def without_compilers(folder: Path) -> str:
    """A PATH of one folder with links to all programs but compilers."""
    compiler = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c[89]9)(-\d+)?")
    folder.mkdir()
    for place in map(Path, os.get_exec_path()):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not compiler.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.fixture(scope="session")
def dist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution of this working tree, and the wheel that is built from it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        cwd=project,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (project / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project / name, source / name)
    tools = make_environment(tmp_path_factory.mktemp("tools") / "venv", out, "build", "twine")
    tools.run("python", "-m", "build", "--outdir", str(out), str(source))
    tools.run("twine", "check", "--strict", *(str(file) for file in sorted(out.iterdir())))
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel."""
    (file,) = dist.glob("*.whl")
    return file
