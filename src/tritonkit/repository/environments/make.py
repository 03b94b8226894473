"""Make environments, each once for what decides it: requirements, Python, kind of processor and numpy."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from tritonkit.disk import locked, sync_tree, unwritable
from tritonkit.errors import BuildError
from tritonkit.repository.environments.environment import FACTS, PACKAGES, Environment, read_environment
from tritonkit.repository.environments.interpreter import Interpreter
from tritonkit.repository.environments.refused import refused
from tritonkit.repository.environments.uv import find_uv, run_uv
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.requirements import Requirements
from tritonkit.repository.modelspec.units import format_bytes

__all__ = ["Environments"]

_FORMAT = 1
"""Part of the hash, to be raised when an environment of the same requirements is made in another way."""
_DRAFT = ".draft-"
_NOT_SERVED = ("bin", "__pycache__", ".lock")
"""Files in a folder of packages that no model imports; programs name the interpreter of this machine."""


@dataclass(frozen=True)
class Environments:
    """The environments of a project.

    Args:
        folder: the place of all of them, by their hashes.
        interpreter: function that gives the Python of the server; called if a spec has requirements.
        say: function that takes a line about progress.
    """

    folder: Path
    interpreter: Callable[[], Interpreter] = Interpreter.without_server
    say: Callable[[str], None] = lambda text: None

    @classmethod
    def of_project(
        cls, root: Path, interpreter: Callable[[], Interpreter], say: Callable[[str], None] = lambda text: None
    ) -> Environments:
        """The environments in a project's folder."""
        return cls(root / ".tritonkit" / "environments", interpreter, say)

    def make(self, spec: Spec) -> Spec:
        """The spec with the environments that its models need, made or from the cache.

        Raises:
            BuildError: packages cannot be found or installed.
        """
        made = {model: self._one(model, needed) for model, needed in spec.requirements.items()}
        return replace(spec, environments=made) if made else spec

    def find(self, needed: Requirements) -> Environment | None:
        """The facts of an environment that was made; None if it would have to be made."""
        return read_environment(self._place(needed, self.interpreter().with_version(needed.version)))

    def _one(self, model: str, needed: Requirements) -> Path:
        interpreter = self.interpreter().with_version(needed.version)
        place = self._place(needed, interpreter)
        if read_environment(place) is not None:
            return place
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                if read_environment(place) is None:  # another build may have made it meanwhile
                    self._make(model, needed, interpreter, place)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        return place

    def _place(self, needed: Requirements, interpreter: Interpreter) -> Path:
        facts = [_FORMAT, *sorted(needed.lines), needed.sources, interpreter.version, interpreter.machine]
        digest = sha256(json.dumps([*facts, interpreter.numpy]).encode()).hexdigest()
        return self.folder / digest[:16]

    def _make(self, model: str, needed: Requirements, interpreter: Interpreter, place: Path) -> None:
        uv = find_uv(needed.where)
        self.say(f"{model}: making its environment for Python {interpreter.version} ...")
        with self._draft(place) as draft:
            command = _command(uv, needed, interpreter, draft)
            code, text = run_uv(command, draft, self.say)
            if code != 0:
                raise refused(text, needed, interpreter)
            environment = _finish(draft / PACKAGES, needed, interpreter)
            (draft / FACTS).write_text(json.dumps(asdict(environment), indent=1, sort_keys=True) + "\n")
            for name in ("requirements.txt", "constraints.txt"):
                (draft / name).unlink()
            sync_tree(draft)
            shutil.rmtree(place, ignore_errors=True)  # one that is not whole
            draft.rename(place)
        count = len(environment.packages)
        names = ", ".join(f"{name} {version}" for name, version in sorted(environment.packages.items())[:8])
        self.say(
            f"{model}: environment of {count} package{'s'[: count != 1]}, {format_bytes(environment.size_bytes)}"
            f"{names and f': {names}'}{' ...' if count > 8 else ''}"
        )

    @contextmanager
    def _draft(self, place: Path) -> Iterator[Path]:
        """An empty folder on the same disk. What a killed build left is removed, as the lock shows that none runs."""
        for left in self.folder.glob(f"{_DRAFT}*"):
            shutil.rmtree(left, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{_DRAFT}{place.name}-", dir=self.folder))
        draft.chmod(0o755)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _command(uv: str, needed: Requirements, interpreter: Interpreter, draft: Path) -> list[str]:
    """uv's command; the requirements are in a file, so that none is taken for an option."""
    (draft / "requirements.txt").write_text("\n".join(needed.lines) + "\n", encoding="utf-8")
    (draft / "constraints.txt").write_text(f"numpy=={interpreter.numpy}\n")
    command = [uv, "pip", "install", "--target", PACKAGES, "--link-mode", "copy", "--no-progress"]
    if needed.sources:
        program = interpreter.program
        if program is None:
            raise BuildError(
                needed.where,
                found=f"sources: true, and Python {interpreter.version} of the server is not on this machine",
                wanted="the server's Python, which builds packages for itself",
                todo="build on a machine with the server (tritonkit server install), or leave sources out",
            )
        command += ["--python", str(program)]
    else:
        command += ["--python", sys.executable, "--only-binary", ":all:"]
        command += ["--python-version", interpreter.version, "--python-platform", interpreter.platform]
    if needed.hashed:
        command.append("--require-hashes")
    else:
        command += ["--constraints", "constraints.txt"]
    return [*command, "--requirements", "requirements.txt"]


def _finish(packages: Path, needed: Requirements, interpreter: Interpreter) -> Environment:
    """Leave out what the server has already or no model imports; the facts of the rest."""
    versions = {}
    for info in sorted(packages.glob("*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        versions[name.replace("_", "-").lower()] = version
    numpy = versions.pop("numpy", interpreter.numpy)
    if numpy != interpreter.numpy:
        raise BuildError(
            f"{needed.where}.requirements",
            found=f"the lock has numpy {numpy}",
            wanted=f"numpy {interpreter.numpy}, which the server's Python stub has loaded",
            todo=f"write the lock with numpy=={interpreter.numpy}",
        )
    left_out = [packages / name for name in _NOT_SERVED]
    left_out += [*packages.glob("numpy-*.dist-info"), packages / "numpy", packages / "numpy.libs"]
    left_out += [*packages.rglob("__pycache__"), *packages.glob("*.dist-info/uv_*.json")]
    for path in left_out:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for record in packages.glob("*.dist-info/direct_url.json"):
        record.unlink()  # addresses of this machine's index
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    return Environment(interpreter.version, interpreter.machine, interpreter.numpy, versions, size)
