"""Published models that are current: their files are those to be published, or those of an earlier build with the same
inputs. The latter are not rendered again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

import tritonkit
from tritonkit.repository.export import Artifact
from tritonkit.repository.export.artifact import sha256_json
from tritonkit.repository.modelspec import PackageFile, Spec, resolve_file
from tritonkit.repository.optimize.fingerprint import digest, folder_digests
from tritonkit.repository.publish.configurations import named_config
from tritonkit.repository.publish.existing import made_from
from tritonkit.repository.publish.integrity import compiled, versions
from tritonkit.repository.publish.manifest import holds, is_whole
from tritonkit.repository.publish.records import read_record
from tritonkit.resources import STEPS, shipped

__all__ = ["RECORD", "Change", "Recognized", "compare", "inputs_of", "recognize"]

RECORD = "published.json"
_BACKENDS = "python_backends/backends"
_PACKAGES = ("protobuf", "pydantic", "tritonclient")
"""Packages that decide how a configuration is read, checked and written."""

Action = Literal["new version", "new configuration", "unchanged", "removed"]


@dataclass(frozen=True)
class Change:
    """The change that publishing one model makes or made."""

    model: str
    action: Action
    version: int


@dataclass(frozen=True)
class Recognized:
    """A spec's published models, which are as an earlier build left them, with that build's notes."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def compare(folder: Path, files: Mapping[str, str], unversioned: Mapping[str, str]) -> tuple[Action, int]:
    """The action that brings a model's folder to these files, and the newest version there, 0 for none.

    Args:
        files: SHA-256 of each file of the version.
        unversioned: SHA-256 of each file next to the versions. Other files count only in warmup/ and configs/.
    """
    newest = max(versions(folder), default=0)
    if not newest or not is_whole(folder / str(newest), files):
        return "new version", newest
    own = (*folder.glob("warmup/*"), *folder.glob(named_config("*")))
    others = {path.relative_to(folder).as_posix() for path in own} - unversioned.keys()
    return "new configuration" if others or not holds(folder, unversioned) else "unchanged", newest


def inputs_of(
    spec: Spec, artifact: Artifact, target: str, cores: int, members: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Hash of everything that decides on a spec's models; empty if a file cannot be read.

    The artifact's own hash covers the spec's folder, except for model.yaml.

    Args:
        members: this hash of each other spec in the pipeline.
    """
    if not all(members.values()):
        return ""
    folders = {shipped(STEPS), shipped(_BACKENDS), *(step.folder.parent for step in spec.steps if step)}
    try:
        facts = {
            "artifact": artifact.to_json(),
            "files": [digest(file) for file in (spec.file, *_packaged(spec.model, spec))],
            "folders": {str(folder): folder_digests(folder) for folder in folders},
            "code": _code(),
            "environments": {model: folder.name for model, folder in spec.environments.items()},
            "target": target,
            "cores": cores,
            "members": dict(members),
        }
    except OSError:  # nothing is recognized, and publishing says what is wrong
        return ""
    return sha256_json(facts)


@cache
def _code() -> str:
    """Hash of the code that decides on models and of the versions of its packages, computed once in a process."""
    package = Path(tritonkit.__file__).parent
    rooms = (package / "repository").rglob("*.py"), (package / "client" / "wire").glob("*.py"), package.glob("*.py")
    texts = [file.read_bytes() for file in sorted(chain(*rooms))]
    return sha256(b"".join([*texts, *(version(name).encode() for name in _PACKAGES)])).hexdigest()


def _packaged(value: object, spec: Spec) -> Iterator[Path]:
    """The files of installed packages that a spec names in a value of model.yaml, at any depth."""
    if isinstance(value, PackageFile):
        yield resolve_file(value, spec, "")
        return
    if isinstance(value, BaseModel):
        value = vars(value)
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _packaged(inner, spec)


def recognize(out: Path, spec: Spec, artifact: Artifact, inputs: str) -> Recognized | None:
    """The spec's models in `out`, if a build with these inputs published them and their files are as it left them."""
    record = read_record(artifact.folder / RECORD)
    if not inputs or record.get("inputs") != inputs:
        return None
    models: dict[str, list[dict[str, str]]] = record["models"]
    try:
        if made_from(out, spec.name) != sorted(models):
            return None
        changes = tuple(Change(name, *compare(out / name, *files)) for name, files in models.items())
    except OSError:  # publishing says what is wrong
        return None
    if any(change.action != "unchanged" or compiled(out / change.model) for change in changes):
        return None
    return Recognized(changes, tuple(record["notes"]))
