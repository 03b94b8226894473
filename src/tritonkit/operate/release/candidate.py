"""The next version of a model, built outside the repository that is served."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import UsageError
from tritonkit.machine import cores
from tritonkit.perf.diagnose import prove_own_python
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec, load
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish import copy_models
from tritonkit.repository.publish.existing import made_from, recorded_cores
from tritonkit.repository.publish.integrity import MANIFEST, versions
from tritonkit.repository.publish.numbers import newest, remember, used
from tritonkit.serve.stub_python import stub_python

__all__ = ["Candidate", "build_candidate"]


@dataclass(frozen=True)
class Candidate:
    """A version to be released.

    Args:
        model: the spec's name, which is also that of the ensemble, or of the network if there is no ensemble.
        repository: the repository with its Triton models and nothing else.
        models: the names of these Triton models.
        changes: the differences from the served version, such as `digits_network 2` and `digits_top_k configuration`.
        served: whether any version of the model answers now.
        artifact: the network's artifact.
    """

    model: str
    repository: Path
    models: tuple[str, ...]
    changes: tuple[str, ...]
    served: bool
    artifact: Artifact


def build_candidate(
    root: Path, model: str, own: Path, served: Path, folder: Path, progress: Progress | None = None
) -> Candidate:
    """Build a model as `tritonkit build` does, into a repository of its own.

    Version numbers continue after those in `own`, which is not written, and after those of earlier candidates. A cache
    keyed by version number must not mistake a rejected version for the next one.

    Args:
        own: the repository that `tritonkit build` writes.
        served: the repository whose models answer now.
        folder: the folder of the candidate's repository; its content is removed first.

    Raises:
        BuildError: the model cannot be built, or does not pass its quality gate.
        UsageError: there is no such model, or it does not differ from the served version.
    """
    _refuse(load(root / "models" / model, root))
    shutil.rmtree(folder, ignore_errors=True)
    if own.is_dir():
        copy_models(own, folder, made_from(own, model))
    remember(root, model, newest(served, model))
    repository = build_repository(
        root,
        [model],
        out=folder,
        cores=recorded_cores(own, model) or cores(),
        progress=progress,
        after=used(root, model),
        prover=prove_own_python,
        interpreter=lambda: stub_python(root, "cpu"),
    )
    models = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    remember(root, model, newest(folder, model))
    changes = tuple(change for name in models if (change := _change(folder / name, served / name)))
    if not changes:
        raise UsageError(
            f"models/{model}",
            found="what its build gives is what is served already",
            wanted="something to release",
            todo="change the model, then release it",
        )
    result = next(built for built in repository.results if built.variant == repository.served[model])
    assert result.artifact is not None  # noqa: S101 - it was published
    there = bool(versions(served / model))
    return Candidate(model, folder, models, changes, there, result.artifact)


def _refuse(spec: Spec) -> None:
    """Refuse specs that cannot be released step by step."""
    serving = spec.model.serving
    if spec.members:
        raise UsageError(
            f"{spec.file} pipeline",
            found="a pipeline with networks or models of other names, which would have to be released together",
            wanted="a model with one network",
            todo="tritonkit build, then: tritonkit down, up",
        )
    if spec.keeps_sequences:
        raise UsageError(
            f"{spec.file} {'serving.sequence_batching' if serving.sequence_batching else 'pipeline'}",
            found="a model that keeps state between requests",
            wanted="one whose requests may go to either version",
            todo="tritonkit build, then: tritonkit down, up",
        )
    if serving.version_policy.specific:
        raise UsageError(
            f"{spec.file} serving.version_policy",
            found=f"the versions {list(serving.version_policy.specific)}",
            wanted="the latest: a release serves the latest build",
            todo="leave version_policy out",
        )


def _change(new: Path, served: Path) -> str:
    """The changed part of a model: its newest version, else the files next to the versions; empty: nothing."""
    newest, there = versions(new)[-1:], versions(served)[-1:]
    if newest != there or _manifest(new, newest) != _manifest(served, there):
        return f"{new.name} {newest[0]}"
    return f"{new.name} configuration" if _manifest(new) != _manifest(served) else ""


def _manifest(folder: Path, version: Sequence[int] = ()) -> bytes:
    file = folder.joinpath(*map(str, version), MANIFEST)
    return file.read_bytes() if file.is_file() else b""
