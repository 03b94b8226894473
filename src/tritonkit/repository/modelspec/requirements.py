"""The packages that the Python of each Triton model of a spec has for itself, with files of requirements read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec.entries import PipelineStep
from tritonkit.repository.modelspec.files import hold_to_size, resolve_inside
from tritonkit.repository.modelspec.python import OwnPackages, check_requirement
from tritonkit.resources import STEPS, shipped

if TYPE_CHECKING:
    from tritonkit.repository.modelspec.load import Spec

__all__ = ["Requirements", "own_requirements"]

_MOST_MIB = 4
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Requirements:
    """The requirements of one model's Python.

    Args:
        where: their place in a file that a person wrote.
        lines: one requirement each, with its hashes.
        version: the Python that is to run it; empty for the server's.
        sources: whether packages may be built.
    """

    where: str
    lines: tuple[str, ...]
    version: str = ""
    sources: bool = False

    @property
    def hashed(self) -> bool:
        """Whether they are a lock, which has the hashes of all files that may be installed."""
        return any("--hash=" in line for line in self.lines)


def own_requirements(spec: Spec) -> dict[str, Requirements]:
    """Triton model -> the requirements of its Python; models that need none are left out.

    Raises:
        SpecError: a file cannot be read or is not a list of requirements, or a shipped step is given packages.
    """
    needs = {}
    if spec.model.python:
        needs[spec.network_name] = _read(spec.model.python, spec.folder, f"{spec.file} python")
    for index, (step, entry) in enumerate(zip(spec.steps, spec.model.pipeline, strict=True)):
        if step is None or not isinstance(entry, PipelineStep):
            continue
        if entry.python and step.folder.parent == shipped(STEPS):
            raise SpecError(
                f"{spec.file} pipeline.{index}.python",
                found=f"{step.folder.name} is a step that tritonkit ships",
                wanted="requirements for steps of your own",
                todo="copy the step into steps/ of the model's folder, under another name",
            )
        if entry.python:
            needs[step.name] = _read(entry.python, spec.folder, f"{spec.file} pipeline.{index}.python")
        elif step.contract.python:
            needs[step.name] = _read(step.contract.python, step.folder, f"{step.folder / 'step.yaml'} python")
    return needs


def _read(python: OwnPackages, folder: Path, where: str) -> Requirements:
    lines = python.requirements
    if isinstance(lines, str):
        lines = _from_file(resolve_inside(folder, lines, f"{where}.requirements"), f"{where}.requirements")
    return Requirements(where, lines, python.version or "", python.sources)


def _from_file(file: Path, where: str) -> tuple[str, ...]:
    """The requirements of a file as pip reads it; options in it are refused, except for hashes."""
    hold_to_size(file, _MOST_MIB, where)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SpecError(where, found=f"{file.name} is not UTF-8", wanted="lines of requirements") from None
    lines = []
    for raw in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not line:
            continue
        hashes = _HASH.findall(line)
        try:
            lines.append(" ".join([check_requirement(_HASH.sub("", line)), *hashes]))
        except ValueError as error:
            raise SpecError(where, found=f"{file.name}: {error}") from None
    if not lines:
        raise SpecError(where, found=f"{file.name} has no requirement", wanted="at least one")
    bare = [line for line in lines if "--hash=" not in line]
    if bare and len(bare) < len(lines):
        raise SpecError(
            where,
            found=f"{file.name} has hashes, and none for {bare[0]}",
            wanted="hashes of all, or of none",
            todo="write it with uv pip compile --generate-hashes",
        )
    return tuple(lines)
