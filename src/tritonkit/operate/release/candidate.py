"""The next version of a model, built beside the repository that is served."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import UsageError
from tritonkit.export import Artifact
from tritonkit.machine import cores
from tritonkit.optimize.progress import Progress
from tritonkit.pipeline import build_repository, default_out
from tritonkit.publish import copy_models
from tritonkit.publish.existing import made_from, recorded_cores
from tritonkit.publish.integrity import MANIFEST, versions
from tritonkit.spec import load

__all__ = ["Candidate", "build_candidate"]


@dataclass(frozen=True)
class Candidate:
    """What is to be released.

    Args:
        model: the spec's name, which is that of the ensemble or of the network alone.
        repository: with its Triton models and nothing else.
        models: their names.
        version: the newest of `model`. before: that of what is served; 0: none is.
        artifact: the network's.
    """

    model: str
    repository: Path
    models: tuple[str, ...]
    version: int
    before: int
    artifact: Artifact


def build_candidate(
    root: Path, model: str, served: Path, folder: Path, progress: Progress | None = None
) -> Candidate:
    """Build a model as `tritonkit build` does, into a repository of its own.

    Versions are counted on from those in the project's repository, which is not written.

    Args:
        served: the repository whose models answer now.
        folder: for the candidate's; what is there is removed.

    Raises:
        BuildError: it cannot be built, or is not good enough.
        UsageError: no such model, or nothing of it differs from what is served.
    """
    load(root / "models" / model, root)
    shutil.rmtree(folder, ignore_errors=True)
    own = default_out(root, "cpu")
    if own.is_dir():
        copy_models(own, folder, made_from(own, model))
    repository = build_repository(
        root, [model], out=folder, cores=recorded_cores(own, model) or cores(), progress=progress
    )
    models = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    if _state(folder, models) == _state(served, models):
        raise UsageError(
            f"models/{model}", found="what its build gives is what is served already",
            wanted="something to release", todo="change the model, then release it",
        )  # fmt: skip
    result = next(each for each in repository.results if each.variant == repository.served[model])
    assert result.artifact is not None  # noqa: S101 - it was published
    newest, before = versions(folder / model), versions(served / model)
    return Candidate(
        model, folder, models, newest[-1], before[-1] if before else 0, result.artifact
    )


def _state(repository: Path, models: Sequence[str]) -> dict[str, bytes]:
    """What a build would compare: the manifests beside and in the newest version of each model."""
    found: dict[str, bytes] = {}
    for model in models:
        there = versions(repository / model) if (repository / model).is_dir() else []
        for place in ("", *map(str, there[-1:])):
            file = repository / model / place / MANIFEST
            found[f"{model}/{place}"] = file.read_bytes() if file.is_file() else b""
    return found
