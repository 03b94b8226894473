"""The model image: the server's image with a repository in it, from which pods take their models."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from tritonkit.disk import locked, unwritable
from tritonkit.errors import BuildError, UsageError
from tritonkit.operate.deploy.pinned import require_pinned
from tritonkit.operate.store.contents import read_contents
from tritonkit.operate.store.whole import require_whole
from tritonkit.repository.publish.integrity import Progress
from tritonkit.serve.repository import ServedModel, check_files, read_models
from tritonkit.text import first_line

__all__ = ["BUILDERS", "USER", "Builder", "ModelImage", "build_image"]

Builder = Literal["docker", "buildah"]
BUILDERS: tuple[Builder, ...] = ("docker", "buildah")
USER = 10001
"""The user and group of the server's image, who owns the repository in it."""

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_LAST = 12


@dataclass(frozen=True)
class ModelImage:
    """An image that was built.

    Args:
        tag: its name.
        id: its digest, as the builder reports it.
        models: name -> the versions in it, which are those that are served.
        files: the number of the repository's files in it.
        size_bytes: the size of these files.
        out: the tar file with the image; None if none was requested.
    """

    tag: str
    id: str
    models: dict[str, tuple[int, ...]]
    files: int
    size_bytes: int
    out: Path | None


def build_image(
    repository: Path,
    tag: str,
    server: str,
    *,
    builder: Builder | None = None,
    out: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> ModelImage:
    """Check that all served files are as they were published, then put them into an image, at /repository.

    Args:
        repository: a folder of models that are built.
        tag: the image's name, with a tag other than latest.
        server: the image that it begins from, which has the program that init containers run.
        builder: the program that makes the image; by default docker if it is installed, else buildah.
        out: a tar file to write it to, for machines without access to a registry.
        progress: called with the bytes verified so far and in all.

    Raises:
        UsageError: a name cannot be used, or there is no builder or no repository.
        ServerStartError: a model has no version.
        ServerError: a file is not as it was published.
        BuildError: the builder could not make the image, or the image cannot be written to `out`.
    """
    for option, name in (("--tag", tag), ("--server", server)):
        _require_name(option, name, tag=option == "--tag")
    models = read_models(repository)
    for model in models:
        check_files(model)
    with _tool(builder or _found(), server) as tool:
        tool.require()
        # No publish changes what was verified before it is in the image.
        with locked(repository):
            require_whole(repository, copied=True, progress=progress)
            files = {f"{model.name}/{path}": model.folder / path for model in models for path in _served(model)}
            size_bytes = sum(file.stat().st_size for file in files.values())
            tool.build(tag, f"FROM {server}\nCOPY --chown={USER}:{USER} repository /repository\n", files)
        if out is not None:
            tool.save(tag, out)
        versions = {model.name: model.versions for model in models}
        return ModelImage(tag, tool.id(tag), versions, len(files), size_bytes, out)


def _require_name(option: str, name: str, *, tag: bool) -> None:
    try:
        require_pinned(name)
    except ValueError as error:
        raise UsageError(option, found=first_line(error)) from None
    if not _REFERENCE.fullmatch(name) or (tag and "@" in name):
        raise UsageError(f"{option} {name!r}", found="no name of an image", wanted="NAME:TAG")


def _found() -> Builder:
    for name in BUILDERS:
        if shutil.which(name):
            return name
    raise UsageError(
        "tritonkit deploy image",
        found="neither docker nor buildah is installed",
        wanted="a program that builds images",
        todo="Debian: apt-get install docker.io, or apt-get install buildah",
    )


def _served(model: ServedModel) -> Iterator[str]:
    """The files of a model that a server reads: no older versions, nothing hidden, no __pycache__."""
    contents = read_contents(model.folder.parent, [model.name], deep=False)
    versions = {str(number) for number in model.versions}
    for entry in contents[model.name]:
        first, _, rest = entry.path.partition("/")
        if not rest or not first.isdecimal() or first in versions:
            yield entry.path


@contextmanager
def _tool(name: Builder, server: str) -> Iterator[_Tool]:
    path = shutil.which(name)
    if path is None:
        raise UsageError(
            f"--builder {name}",
            found=f"{name} is not installed",
            todo=f"Debian: apt-get install {'docker.io' if name == 'docker' else name}",
        )
    with tempfile.TemporaryFile() as log:
        yield _Tool(name, path, server, log)


@dataclass(frozen=True)
class _Tool:
    """One of the builders.

    Args:
        name: the builder's name.
        path: the path of its program.
        server: the image to begin from.
        log: the file that takes its output.
    """

    name: Builder
    path: str
    server: str
    log: IO[bytes]

    def require(self) -> None:
        """Raise BuildError if the builder cannot work: docker's daemon may not run, or not serve this user."""
        if self.name == "docker" and self._run("info") != 0:
            raise BuildError(
                "docker",
                found="its daemon does not answer this user",
                wanted="a daemon that answers `docker info`",
                todo="systemctl start docker; docs/docker.md has what else there may be",
                details="\n".join(self._said()[-1:]),
            )

    def build(self, tag: str, text: str, files: Mapping[str, Path]) -> None:
        """Build from a Dockerfile's text and the files of a repository, which are sent as a stream."""
        with self._start("build", "--tag", tag, "-") as process:
            try:
                with cast("IO[bytes]", process.stdin) as stream:
                    _write_context(stream, text, files)
            except BrokenPipeError:
                pass  # it ended early, and has said why
            except OSError as error:
                process.kill()
                raise BuildError(
                    str(error.filename or tag),
                    found=f"it cannot be read: {error.strerror}",
                    wanted="files that this user may read",
                ) from error
        if process.returncode:
            raise self._failure(tag)

    def id(self, tag: str) -> str:
        """An image's digest."""
        words = (
            ("inspect", "--format", "{{.Id}}")
            if self.name == "docker"
            else ("inspect", "--type", "image", "--format", "{{.FromImageID}}")
        )
        self._run(*words, tag)
        return (self._said() or [""])[-1].removeprefix("sha256:")

    def save(self, tag: str, out: Path) -> None:
        """Write an image to a tar file, in place of an older one."""
        unfinished = out.with_name(f"{out.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        words = (
            ("save", "--output", str(unfinished), tag)
            if self.name == "docker"
            else ("push", tag, f"docker-archive:{unfinished}:{tag}")
        )
        try:
            if self._run(*words):
                raise BuildError(
                    str(out),
                    found=f"{self.name} could not write the image",
                    wanted="a folder with room for it",
                    details="\n".join(self._said()[-_LAST:]),
                )
            unfinished.replace(out)
        except OSError as error:
            raise unwritable(out.parent, error) from error
        finally:
            unfinished.unlink(missing_ok=True)

    def _failure(self, tag: str) -> BuildError:
        output = "\n".join(self._said()[-_LAST:])
        words = ("image", "inspect") if self.name == "docker" else ("inspect", "--type", "image")
        if self._run(*words, self.server) != 0:
            return BuildError(
                self.server,
                found=f"{self.name} has no such image, and cannot pull it",
                wanted="the server's image, on which the model image is built",
                todo="docker compose build triton makes it (docs/docker.md); or name yours: --server NAME:TAG",
                details=output,
            )
        return BuildError(tag, found=f"{self.name} could not build the image", details=output)

    def _run(self, *words: str) -> int:
        with self._start(*words, stdin=subprocess.DEVNULL) as process:
            return process.wait()

    def _start(self, *words: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        self.log.seek(0)
        self.log.truncate()
        return subprocess.Popen([self.path, *words], stdin=stdin, stdout=self.log, stderr=subprocess.STDOUT)

    def _said(self) -> list[str]:
        self.log.seek(0)
        return [line for line in self.log.read().decode("utf-8", "replace").splitlines() if line]


def _write_context(stream: IO[bytes], text: str, files: Mapping[str, Path]) -> None:
    """Write the builder's input: a tar file without times or owners, so that equal files make an equal layer."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        data = text.encode()
        archive.addfile(_entry("Dockerfile", len(data)), io.BytesIO(data))
        folders: set[str] = set()
        for name, file in sorted(files.items()):
            path = f"repository/{name}"
            for above in reversed([str(parent) for parent in Path(path).parents][:-1]):
                if above not in folders:
                    folders.add(above)
                    archive.addfile(_entry(above, 0, tarfile.DIRTYPE))
            with file.open("rb") as opened:
                archive.addfile(_entry(path, file.stat().st_size), opened)


def _entry(path: str, size_bytes: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.type = size_bytes, kind
    entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    entry.uid = entry.gid = USER
    return entry
