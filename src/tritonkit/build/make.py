"""Build one spec's artifact, or find it in the cache."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tritonkit.build.artifact import Artifact, Signature, TensorInfo, sha256_file
from tritonkit.build.cache import Cache
from tritonkit.build.check import gate
from tritonkit.build.fingerprint import fingerprint, tool_versions
from tritonkit.build.hooks import blame
from tritonkit.build.variants import VARIANTS
from tritonkit.errors import BuildError, SpecError
from tritonkit.spec import Spec, resolve_file

__all__ = ["BuildPlan", "build", "plan"]

PYTHON = "python"
_RESERVED = ("artifact.json", "manifest.json")


@dataclass(frozen=True)
class BuildPlan:
    """What a build of one spec will do: nothing when `cached` holds the artifact."""

    spec: Spec
    variant: str
    source_hash: str
    tools: dict[str, str]
    cached: Artifact | None


def plan(spec: Spec, cache: Cache, force: bool = False) -> BuildPlan:
    """Decide without doing: which variant, under which hash, and whether it lies in the cache."""
    variant = PYTHON if spec.model.network.python else spec.model.serving.variant
    if variant != PYTHON and variant not in VARIANTS:
        raise SpecError(
            f"{spec.file} serving.variant",
            found=f"unknown variant {variant!r}",
            wanted=f"one of {', '.join(VARIANTS)}",
        )
    try:
        tools = tool_versions(spec)
        source_hash = fingerprint(spec, variant, tools)
    except OSError as error:
        raise SpecError(
            str(error.filename or spec.folder),
            found=f"it cannot be read: {error.strerror or error}",
            todo="correct its permissions, or take it out of the model's folder",
        ) from error
    cached = None if force else cache.find(spec.name, variant, source_hash)
    return BuildPlan(spec, variant, source_hash, tools, cached)


def build(
    what: BuildPlan, cache: Cache, on_start: Callable[[BuildPlan], None] = lambda _: None
) -> Artifact:
    """The planned artifact, measured and past the gate; GateError keeps it out of the cache."""
    if what.cached is not None:
        return what.cached
    on_start(what)
    with cache.workplace(what.spec.name) as folder:
        try:
            # What a person's Python prints is no part of a command's own output, such as --json.
            with contextlib.redirect_stdout(sys.stderr):
                artifact = _build_in(folder, what)
            return cache.store(artifact)
        except MemoryError as error:
            raise BuildError(
                str(what.spec.file),
                found=f"there is not enough memory: {error}",
                wanted="room for the network and a few items of its input",
                todo="correct the shapes, or build on a larger machine",
            ) from error
        except OSError as error:
            raise BuildError(
                f"{folder.parent}",
                found=f"it cannot be written: {error.strerror or error}",
                todo="free space, or correct its permissions",
            ) from error


def _build_in(folder: Path, what: BuildPlan) -> Artifact:
    spec = what.spec
    if what.variant == PYTHON:
        signature, measured = _copy_python(spec, folder), None
    else:
        signature, measured = VARIANTS[what.variant](spec, folder)
        gate(spec, measured)
    files = {file.name: sha256_file(file) for file in sorted(folder.iterdir())}
    return Artifact(
        spec.name, what.variant, folder, files, signature, measured, what.source_hash, what.tools
    )


def _copy_python(spec: Spec, folder: Path) -> Signature:
    """A model.py for Triton's Python backend: copied with its files, described by the spec alone."""
    network = spec.model.network
    assert network.python is not None  # noqa: S101  the caller chose this source
    source = resolve_file(network.python, spec, "network.python")
    with blame(spec, "network.python", f"compiling {source.name}"):
        compile(source.read_bytes(), source.name, "exec")
    shutil.copyfile(source, folder / "model.py")
    for reference in network.files:
        source = resolve_file(reference, spec, "network.files")
        if source.name in _RESERVED or (folder / source.name).exists():
            raise SpecError(
                f"{spec.file} network.files",
                found=f"{source.name!r} is there already, or kept for the build's own file",
                wanted="names of their own, because all files lie in one version folder",
            )
        shutil.copyfile(source, folder / source.name)

    inputs, outputs = (
        tuple(TensorInfo.of(name, tensor) for name, tensor in tensors.items())
        for tensors in (network.inputs, network.outputs)
    )
    return Signature(inputs, outputs, spec.model.serving.max_batch_size != 0)
