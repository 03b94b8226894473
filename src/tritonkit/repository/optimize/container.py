"""Run a program of NVIDIA's image by docker, on the GPUs of this machine."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import BuildError
from tritonkit.releases import EMBEDDED, NVIDIA_IMAGE_VARIABLE, release_text

__all__ = ["INPUT", "OUTPUT", "Container", "Program"]

INPUT, OUTPUT = Path("/network"), Path("/plan")
"""Folders in the container: what the program reads, and its working folder."""

_PROCESS = Path(__file__).with_name("container_process.py")
_CLOSED = ("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""Options that take the network and all capabilities from a container."""
_PROGRAMS = ("/usr/src/tensorrt/bin", "/opt/tensorrt/bin")
"""Folders of TensorRT's programs, which the PATH of NVIDIA's image with Triton lacks."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFUSED, _NO_START, _NOT_FOUND = 125, 126, 127
"""Exit codes of `docker run` that are not the program's: docker's own failure, and a program that cannot start."""
_TELL_S = 5.0
_LAST_LINES = 20
_TOOLKIT = "install NVIDIA's container toolkit, and try: docker run --rm --gpus all debian:12 nvidia-smi"
_INSTALL = "install docker and NVIDIA's container toolkit, or build without --in-container"


@dataclass(frozen=True)
class Program:
    """A program in a container.

    Args:
        command: its name and arguments.
        reads: the folder that it may read, as `INPUT`.
        writes: its working folder, as `OUTPUT`.
        log: the file that keeps its output.
    """

    command: Sequence[str]
    reads: Path
    writes: Path
    log: Path


@dataclass(frozen=True)
class Container:
    """NVIDIA's image, whose containers see this machine's GPUs.

    Args:
        image: its name.
        tell: a function that shows how far a program is, at most every few seconds.
    """

    image: str
    tell: Callable[[str], None] = lambda _: None

    def run(self, program: Program, where: str) -> None:
        """Run a program without a network and without capabilities, and with no other folders of this machine.

        BuildError with its log if docker cannot start it, or if it fails.
        """
        docker = shutil.which("docker")
        if docker is None:
            wanted = f"docker, which runs {self.image} on a GPU"
            raise BuildError(where, found="there is no docker on PATH", wanted=wanted, todo=_INSTALL)
        user = _user(self._ask(docker, "info", "--format", "{{json .SecurityOptions}}", where=where))
        search = ":".join((self._search_path(docker, where), *_PROGRAMS))
        name = f"tritonkit-{secrets.token_hex(6)}"
        words = [docker, "run", "--rm", "--name", name, "--gpus", "all", *_CLOSED, *user, *_devices()]
        words += ["--env", f"PATH={search}"]
        words += ["--mount", _mount(program.reads, INPUT, "readonly"), "--mount", _mount(program.writes, OUTPUT)]
        words += ["--workdir", str(OUTPUT), "--entrypoint", program.command[0], self.image, *program.command[1:]]
        code, lines = self._follow([sys.executable, "-I", str(_PROCESS), docker, name, *words], program)
        if code:
            raise self._failure(code, lines, program, where)

    def _follow(self, words: Sequence[str], program: Program) -> tuple[int, list[str]]:
        """The exit code of `docker run`, and the lines of a failure's message; all lines go into the log.

        The container is ended if this process ends before it.
        """
        told_at, last, errors = 0.0, deque[str](maxlen=_LAST_LINES), list[str]()
        with program.log.open("w", errors="replace") as log, _started(words) as process:
            assert process.stdout is not None  # noqa: S101  made with a pipe
            for line in process.stdout:
                log.write(line)
                last.append(line.rstrip())
                if "[E]" in line or line.startswith("docker:"):
                    errors.append(line.rstrip())
                if line.strip() and time.monotonic() - told_at >= _TELL_S:
                    told_at = time.monotonic()
                    self.tell(f"{program.command[0]}: {_undated(line)}")
        return process.returncode, errors[:_LAST_LINES] or list(last)

    def _search_path(self, docker: str, where: str) -> str:
        """The image's PATH; the image is pulled if it is not there."""
        words = (docker, "image", "inspect", "--format", "{{json .Config.Env}}", self.image)
        try:
            variables = self._ask(*words, where=where)
        except BuildError:
            self.tell(f"docker pulls {self.image}; NVIDIA's images have more than 10 GB")
            todo = f"correct --image (or {NVIDIA_IMAGE_VARIABLE}), or pull it by hand: docker pull {self.image}"
            self._ask(docker, "pull", "--quiet", self.image, where=where, todo=todo)
            variables = self._ask(*words, where=where)
        return dict(line.split("=", 1) for line in json.loads(variables) or ()).get("PATH") or _PATH

    def _ask(
        self, *words: str, where: str, todo: str = "start it (systemctl start docker), or join the group docker"
    ) -> str:
        """The output of a docker command; BuildError with docker's reason."""
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            found, wanted = f"docker {words[1]} fails: {reason[-1]}", f"a docker daemon that runs {self.image}"
            raise BuildError(where, found=found, wanted=wanted, todo=todo)
        return done.stdout

    def _failure(self, code: int, lines: Sequence[str], program: Program, where: str) -> BuildError:
        name, reason = program.command[0], _undated(lines[0]) if lines else "no reason was given"
        found, wanted = f"{name} fails with exit code {code}: {reason}", "a network that TensorRT takes"
        todo = f"read the log ({program.log}), or choose another variant"
        if code == _REFUSED:
            found, wanted = f"docker starts no container: {reason}", "a container with the GPUs of this machine"
            todo = _TOOLKIT
        elif code in (_NO_START, _NOT_FOUND):
            found, wanted = f"{self.image} has no {name} that can be run", f"NVIDIA's image with {name}"
            todo = f"choose the one with TensorRT of the same release: --image {_with_tensorrt(self.image)}"
        return BuildError(where, found=found, wanted=wanted, todo=todo, details="\n".join(lines))


def _started(words: Sequence[str]) -> subprocess.Popen[str]:
    """A process whose output, errors among it, is read as text; the end of its input tells that this one has ended."""
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    # In a session of its own: Ctrl-C in a terminal reaches this process alone.
    return subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=same, text=True, errors="replace", start_new_session=True
    )


def _user(security: str) -> list[str]:
    """The user who owns what is written; without root rights docker itself makes root this user."""
    return [] if "rootless" in security else ["--user", f"{os.getuid()}:{os.getgid()}"]


def _devices() -> list[str]:
    """The choice of GPUs, which counts in the container too."""
    return ["--env", "CUDA_VISIBLE_DEVICES"] if "CUDA_VISIBLE_DEVICES" in os.environ else []


def _mount(source: Path, target: Path, *options: str) -> str:
    """An argument of --mount, which docker reads as a row of CSV."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(
        ["type=bind", f"source={source.resolve()}", f"target={target}", *options]
    )
    return row.getvalue()


def _undated(line: str) -> str:
    """A line of TensorRT's log without its time."""
    return re.sub(r"^\[[\d/:-]+\]\s*", "", line.strip())


def _with_tensorrt(image: str) -> str:
    """NVIDIA's image with TensorRT alone, of the same release where the name tells it."""
    release = re.search(r":(\d\d\.\d\d)", image)
    return f"nvcr.io/nvidia/tensorrt:{release[1] if release else release_text(EMBEDDED)}-py3"
