"""`tritonkit build` from start to end: model folders in, a repository that Triton loads out.

What `build_repository` calls, in order, and the rooms where it is:

    load_all    model.yaml -> Spec                                             spec
    evaluate    Spec -> its variants, each made or cached, measured, judged    export, optimize
    choose      of these the one to be served: an Artifact                     optimize
    render      Spec and Artifact -> a checked config.pbtxt for each model     render
    publish     text and files -> the repository, each model in one step       publish
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.disk import unwritable
from tritonkit.errors import RenderError
from tritonkit.export import Artifact, BuildCache
from tritonkit.machine import cores as machine_cores
from tritonkit.optimize.progress import Progress
from tritonkit.optimize.results import Result, choose, evaluate, wanted_variants
from tritonkit.optimize.variants import for_target, variant_of
from tritonkit.publish.existing import recorded_cores
from tritonkit.publish.publish import Change, Rendered, drift, publish
from tritonkit.render.config import render_config
from tritonkit.render.plan import plan_models
from tritonkit.render.values import Target
from tritonkit.spec import Spec, load_all, load_every

__all__ = [
    "Repository",
    "build_artifact",
    "build_repository",
    "check_repository",
    "default_out",
    "render_models",
]


@dataclass(frozen=True)
class Repository:
    """A model repository on disk, and how a build brought it there."""

    path: Path
    results: tuple[Result, ...]
    served: dict[str, str]
    """Model -> the variant that was published."""
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


def build_repository(
    root: Path,
    names: Sequence[str] = (),
    *,
    target: Target = "cpu",
    out: Path | None = None,
    cores: int | None = None,
    variants: Sequence[str] = (),
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    after: Mapping[str, int] | None = None,
) -> Repository:
    """Build what changed, hold it to the quality gate, render it, publish it.

    Args:
        names: folders of `models/`; by default all that are not marked `default: false`.
        cores: of the machine that will serve; this one's by default.
        variants: what to build beside the one that is served: names, `spec` or `all`. They are
            timed; one that cannot be made or loses too much is a result like the others.
        force: build again what the cache holds.
        dry_run: nothing is built and nothing written.
        after: Triton model -> a number that its new version's is to be above, as it is above those
            in `out`; a model that does not change keeps its version.

    Raises:
        GateError: the variant to be served is not good enough; what was published stays.
    """
    progress = progress or Progress()
    # Resolved now: a model's Python may change the working folder.
    out = (out or default_out(root, target)).resolve()
    specs = [for_target(spec, target) for spec in load_all(root, tuple(names))]
    results: list[Result] = []
    served: dict[str, str] = {}
    rendered: list[Rendered] = []
    with contextlib.nullcontext() if dry_run else _build_lock(root, progress):
        for spec in specs:
            made = _make_variants(spec, root, variants, progress, force=force, dry_run=dry_run)
            results += made
            artifact = _cached_artifact(spec, made) if dry_run else choose(spec, made)
            if artifact is not None:
                served[spec.name] = artifact.variant
                rendered += render_models(spec, artifact, root, target, cores or machine_cores())
        _refuse_duplicates(rendered)
        if not dry_run:
            progress.publishing()
        changes = publish(
            out, rendered, dry_run=dry_run, all_specs=not names and not dry_run,
            keep=_not_default(root), after=after,
        )  # fmt: skip
    notes = tuple(note for model in rendered for note in model.plan.notes)
    return Repository(out, tuple(results), served, tuple(changes), notes)


def check_repository(
    root: Path, names: Sequence[str] = (), *, target: Target = "cpu", out: Path | None = None,
    cores: int | None = None, progress: Progress | None = None,
) -> dict[str, tuple[str, str]]:  # fmt: skip
    """Tracked texts that a fresh render would change: path -> (text now, fresh text).

    Rendered for the cores that the tracked text names, so that any machine may check. Artifacts
    that are not in the cache are built there; the repository is not written.
    """
    progress = progress or Progress()
    out = (out or default_out(root, target)).resolve()
    rendered: list[Rendered] = []
    with _build_lock(root, progress):
        for spec in [for_target(spec, target) for spec in load_all(root, tuple(names))]:
            artifact = choose(spec, _make_variants(spec, root, (), progress))
            count = cores or recorded_cores(out, spec.name) or machine_cores()
            rendered += render_models(spec, artifact, root, target, count)
    _refuse_duplicates(rendered)
    return drift(out, rendered, all_specs=not names, keep=_not_default(root))


def build_artifact(root: Path, spec: Spec, progress: Progress | None = None) -> Artifact:
    """What a spec serves, made or from the cache, and held to the quality gate; nothing is published.

    Raises:
        GateError: it is not good enough.
    """
    progress = progress or Progress()
    with _build_lock(root, progress):
        return choose(spec, _make_variants(spec, root, (), progress))


def default_out(root: Path, target: Target) -> Path:
    """`model_repository/`, whose text is tracked, for the CPU; a folder beside it for GPUs."""
    return root / ("model_repository" if target == "cpu" else f"model_repository_{target}")


def _make_variants(
    spec: Spec, root: Path, variants: Sequence[str], progress: Progress, *, force: bool = False,
    dry_run: bool = False,
) -> tuple[Result, ...]:  # fmt: skip
    """The served variant and those in `variants`, each made or taken from the cache."""
    wanted = wanted_variants(spec, variants)
    return evaluate(
        spec,
        wanted,
        BuildCache.of_project(root, progress.warn),
        threads=machine_cores(),
        force=force,
        timed=len(wanted) > 1,  # several are compared by their speed too
        dry_run=dry_run,
        progress=progress,
    )


def _cached_artifact(spec: Spec, results: Sequence[Result]) -> Artifact | None:
    """What a dry run can show of the artifact to be served: nothing, where it is not built yet."""
    served = variant_of(spec).name
    return next((r.artifact for r in results if r.variant == served), None)


def render_models(
    spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int
) -> list[Rendered]:
    """The Triton models of a spec: its pipeline's steps, the network, the ensemble."""
    source = str(spec.file.relative_to(root))
    return [
        Rendered(
            model,
            render_config(model, source=source, target=target, cores=cores),
            artifact,
            {
                count: render_config(there, source=source, target=target, cores=count)
                for count, there in model.fewer_cores.items()
            },
        )
        for model in plan_models(spec, artifact, target, cores)
    ]


def _refuse_duplicates(models: Sequence[Rendered]) -> None:
    """Two Triton models of one name: `net` with a step `top_k` beside a spec called `net_top_k`."""
    owners: dict[str, str] = {}
    for model in models:
        name, spec = model.plan.name, model.artifact.model
        if name in owners:
            raise RenderError(
                f"models/{spec}",
                found=f"a Triton model called {name!r}, as models/{owners[name]} has one",
                wanted="one model of a name",
                todo="rename the spec, or give its step a `name`",
            )
        owners[name] = spec


def _not_default(root: Path) -> frozenset[str]:
    """The specs that are built only when they are named; what they published stays."""
    return frozenset(spec.name for spec in load_every(root) if not spec.model.default)


@contextlib.contextmanager
def _build_lock(root: Path, progress: Progress) -> Iterator[None]:
    """Let a second build wait for the first; the lock ends with the process that holds it."""
    file = root / ".tritonkit" / "build.lock"
    try:
        file.parent.mkdir(exist_ok=True)
        lock = file.open("w")
    except OSError as error:
        raise unwritable(file, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
