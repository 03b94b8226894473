"""Verify the files of a repository against the manifests they were published with.

This file uses the standard library only, because the server's image has it without tritonkit. It finds changes by a
disk, a copy or a mistake. It cannot find those of an attacker, who can write the manifests too.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

__all__ = [
    "CONFIG",
    "MANIFEST",
    "Damage",
    "IrregularFileError",
    "Totals",
    "Verifier",
    "compiled",
    "foreign",
    "is_compiled",
    "open_file",
    "read_manifest",
    "verify",
    "verify_folder",
    "versions",
]

CONFIG = "config.pbtxt"
MANIFEST = "manifest.json"

Progress = Callable[[int, int], None]
"""Called with the bytes hashed so far and the bytes in all."""

_HEADER = "# Rendered by tritonkit "
_POLICY = re.compile(r"version_policy\s*{\s*(?P<kind>latest|all|specific)\s*{(?P<rest>[^}]*)}")
_CHUNK = 1 << 20
_MOST_BYTES = 1 << 26
_ATTEMPTS = 3
_BUILD = "build the models again: tritonkit build"
_COMPILED = "__pycache__"


class IrregularFileError(OSError):
    """A pipe, a socket, a device or a folder where a file was expected."""


@dataclass(frozen=True)
class Damage:
    """One file that differs from the published one."""

    model: str
    file: Path
    found: str
    wanted: str
    todo: str = _BUILD

    def __str__(self) -> str:
        return f"{self.file}: {self.found}; wanted {self.wanted}"


@dataclass
class Totals:
    """Counts of what a `verify` checked."""

    models: int = 0
    files: int = 0
    size_bytes: int = 0


@dataclass
class _ModelCheck:
    """The files of one model that are to be hashed, and the damage found without hashing."""

    name: str
    files: list[tuple[Path, str, int]] = field(default_factory=list)
    findings: list[Damage] = field(default_factory=list)

    def add(self, file: Path, found: str, wanted: str) -> None:
        self.findings.append(Damage(self.name, file, found, wanted))


def verify(
    repository: Path,
    models: Sequence[str] = (),
    *,
    progress: Progress = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
    totals: Totals | None = None,
) -> list[Damage]:
    """Every file of the served versions that differs from its manifest: sizes are compared first, then SHA-256.

    Args:
        repository: a folder of models.
        models: names; all by default. Models that tritonkit did not write have no manifest: see `foreign`.
        progress: called after each chunk.
        stop: called between chunks of 1 MiB; once it returns True, the damage found so far is returned.
        totals: filled with what was checked.
    """
    totals = Totals() if totals is None else totals
    try:
        names = list(models) or _folders(repository)
    except OSError as error:
        return [_unreadable("", repository, error)]
    planned = [_plan(repository / name) for name in names if not _is_foreign(repository / name)]
    total = sum(size for model in planned for _, _, size in model.files)
    totals.models, totals.size_bytes = len(planned), total
    totals.files = sum(len(model.files) for model in planned)
    done = 0
    findings: list[Damage] = []

    def count(size: int) -> bool:
        nonlocal done
        done += size
        progress(min(done, total), total)
        return stop()

    for model in planned:
        findings += _verified(repository / model.name, model, count)
        if stop():
            break
    return findings


def verify_folder(folder: Path) -> list[Damage]:
    """Verify one folder that is not a model and has a manifest of its own.

    Compiled Python in it is ignored, because an image holds files that were compiled while it was made.
    """
    check = _ModelCheck(folder.name)
    try:
        _compare(check, folder, set())
    except OSError as error:
        check.findings.append(_unreadable("", folder, error))
    findings = [*check.findings, *_hashed(check, lambda size: False)]
    return [finding for finding in findings if not is_compiled(finding.file.relative_to(folder))]


def foreign(repository: Path, models: Sequence[str] = ()) -> list[str]:
    """The models that tritonkit did not write, which `verify` skips."""
    names = list(models) or _folders(repository)
    return [name for name in names if _is_foreign(repository / name)]


def open_file(file: Path) -> IO[bytes]:
    """Open a file that somebody else may have put there. A pipe does not block, and a device is not read.

    Raises:
        IrregularFileError: it is not a regular file.
        OSError: it cannot be opened.
    """
    opened = open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    opened.close()
    raise IrregularFileError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(file))


def _read(file: Path) -> bytes:
    """The content of a small file; OSError if it is not small."""
    with open_file(file) as opened:
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return data


def is_compiled(file: Path) -> bool:
    """Whether a file lies where Python looks for the compiled form of a source."""
    return _COMPILED in file.parts


def compiled(folder: Path) -> list[Damage]:
    """The compiled Python in a model's folder, of any version; it is neither published nor signed."""
    try:
        return [
            _compiled(folder.name, file) for file in _present(folder, set()) if is_compiled(file.relative_to(folder))
        ]
    except OSError as error:
        return [_unreadable(folder.name, folder, error)]


class Verifier(threading.Thread):
    """A thread that runs `verify` and then calls `then` with the damage, unless it was stopped."""

    def __init__(
        self,
        repository: Path,
        models: Sequence[str] = (),
        *,
        then: Callable[[list[Damage]], None] = lambda findings: None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        super().__init__(name="verify", daemon=True)
        self._repository, self._models = repository, models
        self._then, self._progress = then, progress
        self._stopped = threading.Event()
        self.findings: list[Damage] | None = None
        """The damage; None until the thread has ended."""

    def run(self) -> None:
        """Called by `start`."""
        try:
            findings = verify(self._repository, self._models, progress=self._progress, stop=self._stopped.is_set)
        except Exception as error:  # a repository that could not be checked does not count as whole
            problem = f"it cannot be verified: {error!r}"
            findings = [Damage("", self._repository, problem, "a repository")]
        if not self._stopped.is_set():
            self.findings = findings
            self._then(findings)

    def stop(self) -> None:
        """End the thread at the next chunk, without a call of `then`."""
        self._stopped.set()


def _folders(repository: Path) -> list[str]:
    return sorted(path.parent.name for path in repository.glob(f"*/{CONFIG}"))


def _is_foreign(folder: Path) -> bool:
    """Whether a model carries neither tritonkit's header nor a manifest."""
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return False
    try:
        with open_file(folder / CONFIG) as file:
            if file.read(len(_HEADER)).decode("utf-8", "replace") == _HEADER:
                return False
    except OSError:
        return False
    return not any(folder.glob(f"[0-9]*/{MANIFEST}"))


def _verified(folder: Path, model: _ModelCheck, count: Callable[[int], bool]) -> list[Damage]:
    """The model's damage; checked again if a publish exchanged its folder meanwhile."""
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        findings = [*model.findings, *_hashed(model, count)]
        if not findings or _identity(folder) == before:
            break
        model = _plan(folder)
    return findings


def _identity(folder: Path) -> tuple[int, int]:
    try:
        state = folder.stat()
    except OSError:
        return (0, 0)
    return (state.st_ino, state.st_mtime_ns)


def _plan(folder: Path) -> _ModelCheck:
    """The files of a model to hash. Missing and extra files and those of another size are reported here."""
    model = _ModelCheck(folder.name)
    try:
        if not folder.is_dir():
            model.add(folder, "there is no such model", "a folder with config.pbtxt")
            return model
        config = folder / CONFIG
        text = _read(config).decode("utf-8", "replace") if config.is_file() else ""
        served = _served(folder, text)
        if not served:
            model.add(folder, "no version of it is there", "a numbered folder")
        _compare(model, folder, {str(number) for number in versions(folder)})
        for number in served:
            _compare(model, folder / str(number), set())
    except OSError as error:
        model.findings.append(_unreadable(model.name, folder, error))
    return model


def _compare(model: _ModelCheck, folder: Path, skipped: set[str]) -> None:
    """Compare a folder's names and sizes with its manifest."""
    place = folder / MANIFEST
    facts = read_manifest(folder)
    if facts is None:
        model.add(place, "there is none that can be read", "the one that a build writes")
        return
    files, sizes = facts["files"], facts.get("sizes", {})
    for name, digest in sorted(files.items()):
        if not _is_inside(name):
            model.add(place, f"it names {name!r}", "files inside its own folder")
            continue
        file = folder / name
        try:
            state = file.stat()
        except FileNotFoundError:
            model.add(file, "it is missing", f"the file that {MANIFEST} names")
            continue
        if not stat.S_ISREG(state.st_mode):
            model.add(file, "it is not a file", f"the file that {MANIFEST} names")
        elif state.st_size != sizes.get(name, state.st_size):
            model.add(file, f"{state.st_size} bytes", f"{sizes[name]} bytes")
        else:
            model.files.append((file, digest, state.st_size))
    for file in _present(folder, skipped):
        if is_compiled(file.relative_to(folder)):
            model.findings.append(_compiled(model.name, file))
        elif file.relative_to(folder).as_posix() not in files and file != place:
            model.add(file, "it was not published", f"only what {MANIFEST} names")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in a folder; None if none can be read."""
    try:
        facts = json.loads(_read(folder / MANIFEST))
    except (OSError, ValueError, RecursionError):
        return None
    whole = isinstance(facts, dict) and isinstance(facts.get("files"), dict)
    if not whole or not isinstance(facts.get("sizes", {}), dict):
        return None
    digests = facts["files"].values()
    return facts if all(isinstance(digest, str) for digest in digests) else None


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def _present(folder: Path, skipped: set[str]) -> Iterator[Path]:
    """The files of a folder that Triton or a model's Python might read: all except hidden ones."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        inner = [name for name in folders if not name.startswith(".")]
        if here == folder:
            inner = [name for name in inner if name not in skipped]
        folders[:] = [name for name in inner if not (here / name).is_symlink()]
        links = [name for name in inner if (here / name).is_symlink()]
        yield from (here / name for name in sorted([*files, *links]) if not name.startswith("."))


def _compiled(model: str, file: Path) -> Damage:
    todo = f"{_BUILD}, which removes it; or remove {file.parent}"
    return Damage(model, file, "compiled Python, which may run in place of its source", "sources only", todo)


def versions(folder: Path) -> list[int]:
    """Version numbers of a model's folder, as Triton reads them: numeric, without a leading 0."""
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if re.fullmatch(r"[1-9][0-9]*", name))


def _served(folder: Path, config: str) -> list[int]:
    """The versions that Triton loads by the configuration's policy; the latest without one."""
    present = versions(folder)
    policy = _POLICY.search(config)
    if policy is None:
        return present[-1:]
    numbers = [int(number) for number in re.findall(r"\d+", policy["rest"])]
    if policy["kind"] == "latest":
        return present[-max(numbers[0] if numbers else 1, 1) :]
    return present if policy["kind"] == "all" else [n for n in present if n in numbers]


def _hashed(model: _ModelCheck, count: Callable[[int], bool]) -> list[Damage]:
    """The files whose content differs from the manifest's hash."""
    findings = []
    for file, expected, size in model.files:
        try:
            actual = _sha256(file, count)
        except OSError as error:
            findings.append(_unreadable(model.name, file, error))
            continue
        if actual is None:  # stopped
            break
        if actual != expected:
            message = f"sha256 {actual[:12]}... of {size} bytes"
            findings.append(Damage(model.name, file, message, f"{expected[:12]}..."))
    return findings


def _sha256(file: Path, count: Callable[[int], bool]) -> str | None:
    digest = hashlib.sha256()
    with open_file(file) as stream:
        while part := stream.read(_CHUNK):
            digest.update(part)
            if count(len(part)):
                return None
    return digest.hexdigest()


def _unreadable(model: str, file: Path, error: OSError) -> Damage:
    place = Path(error.filename) if isinstance(error.filename, str) else file
    todo = "correct its permissions, or build the models again: tritonkit build"
    reason = error.strerror or str(error)
    return Damage(model, place, f"it cannot be read: {reason}", "a file this user may read", todo)
