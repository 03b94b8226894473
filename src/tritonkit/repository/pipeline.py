"""`tritonkit build` from start to end: model folders in, a repository that Triton loads out.

What `build_repository` calls, in order, and the rooms where it is:

    load_all    model.yaml -> Spec                                             spec
    evaluate    Spec -> its variants, each made or cached, measured, judged    export, optimize
    choose      of these the one to be served: an Artifact                     optimize
    render      Spec and Artifact -> a checked config.pbtxt for each model     render
    try_serving the network's files and text, loaded once as the server will   publish
    publish     text and files -> the repository, each model in one step       publish

Python of a user's own that gets batches is tried between rendering and publishing, by a server that the caller gives
(`Prover`): to start one is the business of rooms that come later.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tritonkit.disk import unwritable
from tritonkit.errors import RenderError, TritonkitError
from tritonkit.machine import cores as machine_cores
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.export.samples import Batch, first_items
from tritonkit.repository.modelspec import Spec, kept_specs, load_all, load_readable
from tritonkit.repository.modelspec.contents import tries_own_python
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.results import Result, choose, evaluate, wanted_variants
from tritonkit.repository.optimize.variants import for_target, variant_of
from tritonkit.repository.publish.callees import missing_callees
from tritonkit.repository.publish.existing import recorded_cores
from tritonkit.repository.publish.own_python import given_items, keep_verdicts, kept_verdicts, untried
from tritonkit.repository.publish.publish import Change, Rendered, drift, publish
from tritonkit.repository.publish.trial import try_serving
from tritonkit.repository.render.config import render_config
from tritonkit.repository.render.own_python import Verdicts
from tritonkit.repository.render.plan import plan_models
from tritonkit.repository.render.values import Target
from tritonkit.watched import of_model

__all__ = [
    "Prover",
    "Repository",
    "build_artifact",
    "build_repository",
    "check_repository",
    "default_out",
    "render_models",
]

Prover = Callable[[Path, Sequence[Rendered], Sequence[str], Sequence[Batch]], Verdicts]
"""Tries Python of a user's own in batches: of a project's folder, the models of a spec, the names of those to try,
and items by the names of the pipeline's tensors (`diagnose.prove_own_python`)."""


@dataclass(frozen=True)
class Repository:
    """A model repository on disk, and how a build brought it there."""

    path: Path
    results: tuple[Result, ...]
    served: dict[str, str]
    """Model -> the variant that was published."""
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    failed: Mapping[str, TritonkitError] = field(default_factory=dict)
    """Model -> why it was not built; what it had published stays."""


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
    keep_going: bool = False,
    prover: Prover | None = None,
    refused: Mapping[str, TritonkitError] = MappingProxyType({}),
) -> Repository:
    """Build what changed, hold it to the quality gate, render it, publish it.

    Args:
        names: folders of `models/`; by default all that are not marked `default: false`. No other folder is read.
        cores: of the machine that will serve; this one's by default.
        variants: what to build beside the one that is served: names, `spec` or `all`. They are
            timed; one that cannot be made or loses too much is a result like the others.
        force: build again what the cache holds.
        dry_run: nothing is built and nothing written.
        after: Triton model -> a number that its new version's is to be above, as it is above those
            in `out`; a model that does not change keeps its version.
        keep_going: build and publish the others where one fails; `Repository.failed` says which did.
        prover: tries steps and `python` networks of a user's own in batches; without it a note says that they were
            not tried.
        refused: models that are not to be built, each with its error: an attempt had to be ended.

    Raises:
        GateError: the variant to be served is not good enough; what was published stays.
        TritonkitError: a model cannot be built; unless `keep_going`.
    """
    progress = progress or Progress()
    # Resolved now: a model's Python may change the working folder.
    out = (out or default_out(root, target)).resolve()
    failed: dict[str, TritonkitError] = {}
    specs = _read_specs(root, tuple(names), target, failed if keep_going else None)
    results: list[Result] = []
    served: dict[str, str] = {}
    rendered: list[Rendered] = []

    def build(spec: Spec) -> None:
        jobs: dict[str, Job] = {}
        made = _make_variants(spec, root, variants, progress, force=force, dry_run=dry_run, jobs=jobs)
        results.extend(made)
        artifact = _cached_artifact(spec, made) if dry_run else choose(spec, made)
        if artifact is not None:
            models = render_models(spec, artifact, root, target, cores or machine_cores())
            if not dry_run and target == "cpu":
                _try_network(spec, artifact, models, jobs)
                job = jobs[variant_of(spec, artifact.variant).base]
                if _prove(spec, models, job, root, prover, progress):
                    models = render_models(spec, artifact, root, target, cores or machine_cores())
            rendered.extend(models)
            served[spec.name] = artifact.variant

    def fail(name: str, error: TritonkitError) -> None:
        if not keep_going:
            raise error
        failed[name] = error
        served.pop(name, None)

    with contextlib.nullcontext() if dry_run else _build_lock(root, progress):
        for spec in specs:
            try:
                if spec.name in refused:
                    raise refused[spec.name]
                with of_model(spec.name):
                    build(spec)
            except TritonkitError as error:
                fail(spec.name, error)
        for name, duplicate in _duplicates(rendered).items():
            fail(name, duplicate)
        fine = [model for model in rendered if model.artifact.model not in failed]
        changes: list[Change] = []
        if fine or not failed:
            every = not names and not dry_run
            if not dry_run:
                progress.publishing()
            changes = publish(
                out,
                fine,
                dry_run=dry_run,
                all_specs=every,
                keep=kept_specs(root) | set(failed) if every else frozenset(),
                after=after,
                on_failure=fail,
            )
    notes = tuple(note for model in fine for note in model.plan.notes)
    notes += missing_callees(root, out, fine)
    return Repository(out, tuple(results), served, tuple(changes), notes, failed)


def _try_network(spec: Spec, artifact: Artifact, models: Sequence[Rendered], jobs: Mapping[str, Job]) -> None:
    """Load the network once as it will be served; the steps of a pipeline are not ours to try."""
    # Without samples for what lies in the cache: it answered a request when it was built.
    known = jobs[variant_of(spec, artifact.variant).base].known_samples
    for model in models:
        if model.plan.name == spec.network_name:
            requests = first_items(known[:1], 1, model.plan.max_batch_size > 0)
            try_serving(model, requests[0] if requests else None)


def _prove(
    spec: Spec, models: Sequence[Rendered], job: Job, root: Path, prover: Prover | None, progress: Progress
) -> bool:
    """Whether Python of the user's own was tried in batches: then the models are to be rendered again."""
    names = untried(models)
    if not names or prover is None or not tries_own_python(spec):
        return False
    progress.trying(spec)
    verdicts = prover(root, models, names, given_items(spec, job, models))
    keep_verdicts(spec, models, verdicts)
    return bool(verdicts)


def _read_specs(
    root: Path, names: tuple[str, ...], target: Target, failed: dict[str, TritonkitError] | None
) -> list[Spec]:
    """The specs to build; those that cannot be read go into `failed`, and without it are raised."""
    if failed is None:
        return [for_target(spec, target) for spec in load_all(root, names)]
    readable, unreadable = load_readable(root, names)
    failed.update(unreadable)
    specs = []
    for spec in readable:
        try:
            specs.append(for_target(spec, target))
        except TritonkitError as error:
            failed[spec.name] = error
    return specs


def check_repository(
    root: Path,
    names: Sequence[str] = (),
    *,
    target: Target = "cpu",
    out: Path | None = None,
    cores: int | None = None,
    progress: Progress | None = None,
    prover: Prover | None = None,
) -> dict[str, tuple[str, str]]:
    """Tracked texts that a fresh render would change: path -> (text now, fresh text).

    Rendered for the cores that the tracked text names, so that any machine may check. Artifacts
    that are not in the cache are built there; the repository is not written.
    """
    progress = progress or Progress()
    out = (out or default_out(root, target)).resolve()
    rendered: list[Rendered] = []
    with _build_lock(root, progress):
        for spec in [for_target(spec, target) for spec in load_all(root, tuple(names))]:
            jobs: dict[str, Job] = {}
            artifact = choose(spec, _make_variants(spec, root, (), progress, jobs=jobs))
            count = cores or recorded_cores(out, spec.name) or machine_cores()
            models = render_models(spec, artifact, root, target, count)
            job = jobs[variant_of(spec, artifact.variant).base]
            if target == "cpu" and _prove(spec, models, job, root, prover, progress):
                models = render_models(spec, artifact, root, target, count)
            rendered += models
    for duplicate in _duplicates(rendered).values():
        raise duplicate
    keep = frozenset() if names else kept_specs(root)
    return drift(out, rendered, all_specs=not names, keep=keep)


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
    spec: Spec,
    root: Path,
    variants: Sequence[str],
    progress: Progress,
    *,
    force: bool = False,
    dry_run: bool = False,
    jobs: dict[str, Job] | None = None,
) -> tuple[Result, ...]:
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
        jobs=jobs,
    )


def _cached_artifact(spec: Spec, results: Sequence[Result]) -> Artifact | None:
    """What a dry run can show of the artifact to be served: nothing, where it is not built yet."""
    served = variant_of(spec).name
    return next((r.artifact for r in results if r.variant == served), None)


def render_models(spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int) -> list[Rendered]:
    """The Triton models of a spec: its pipeline's steps, the network, the ensemble.

    What a build saw of a user's own Python in batches counts, also here.
    """
    models = _rendered(spec, artifact, root, target, cores, {})
    verdicts = kept_verdicts(spec, models)
    return _rendered(spec, artifact, root, target, cores, verdicts) if verdicts else models


def _rendered(
    spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int, verdicts: Verdicts
) -> list[Rendered]:
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
            verdicts.get(model.name),
        )
        for model in plan_models(spec, artifact, target, cores, verdicts)
    ]


def _duplicates(models: Sequence[Rendered]) -> dict[str, RenderError]:
    """Specs with a Triton model of the same name, such as `net` with a step `top_k` and a spec `net_top_k`: neither
    can be published."""
    owners: dict[str, str] = {}
    found: dict[str, RenderError] = {}
    for model in models:
        name, spec = model.plan.name, model.artifact.model
        owner = owners.setdefault(name, spec)
        if owner == spec:
            continue
        for one, other in ((spec, owner), (owner, spec)):
            found[one] = RenderError(
                f"models/{one}",
                found=f"a Triton model called {name!r}, as models/{other} has one",
                wanted="one model of a name",
                todo="rename the spec, or give its step a `name`",
            )
    return found


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
