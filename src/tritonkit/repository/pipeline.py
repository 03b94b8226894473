"""`tritonkit build` from start to end: model folders in, a repository that Triton loads out.

`build_repository` calls, in this order (with the room of each):

    load_all    model.yaml -> Spec                                             modelspec
    evaluate    Spec -> its variants, each made or cached, measured, judged    optimize
    choose      these results -> the artifact to serve                         optimize
    make        requirements of a model's own Python -> its packages          environments
    recognize   the same inputs and files as after an earlier build: done      publish
    render      Spec and Artifact -> a checked config.pbtxt for each model     render
    try_serving the network's files and text, loaded once as the server will   publish
    publish     text and files -> the repository, each model in one step       publish

Between rendering and publishing, a server tries the user's own Python in batches. The caller passes a function for it
(`Prover`), because rooms further right start servers.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from tritonkit.disk import unwritable
from tritonkit.errors import TritonkitError
from tritonkit.machine import cores as machine_cores
from tritonkit.repository.environments import Environments, Interpreter
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.export.samples import Batch, first_items
from tritonkit.repository.modelspec import Spec, kept_specs, load_readable
from tritonkit.repository.modelspec.contents import build_python, tries_own_python
from tritonkit.repository.optimize.built import as_built
from tritonkit.repository.optimize.container import Container
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.graph import graph_artifact
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.results import Result, choose, evaluate, unmeasured_notes, wanted_variants
from tritonkit.repository.optimize.variants import PLAIN, for_target, in_container, runs_on_cpu, served_name
from tritonkit.repository.publish.current import Change, inputs_of, recognize
from tritonkit.repository.publish.existing import recorded_cores
from tritonkit.repository.publish.made import Made
from tritonkit.repository.publish.names import duplicates, missing_callees, outdated_callers
from tritonkit.repository.publish.own_python import keep_verdicts, trial_items, untried
from tritonkit.repository.publish.publish import Rendered, drift, publish, recover
from tritonkit.repository.publish.rendering import Members, render_models, trial_target
from tritonkit.repository.publish.trial import try_serving
from tritonkit.repository.render.gpu_memory import Card, check_card
from tritonkit.repository.render.own_python import Verdicts
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
"""A function that tries a user's own Python in batches (`diagnose.prove_own_python`). Its arguments are a project's
folder, a spec's models, the names of the models to try, and items by the names of the pipeline's tensors."""


@dataclass(frozen=True)
class Repository:
    """A model repository on disk, and how a build brought it there."""

    path: Path
    specs: tuple[Spec, ...]
    """The specs that were read to be built."""
    results: tuple[Result, ...]
    served: dict[str, str]
    """Model -> the variant that was published."""
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    failed: Mapping[str, TritonkitError] = field(default_factory=dict)
    """Model -> why it was not built; its published models stay."""

    @property
    def would_run(self) -> dict[str, tuple[str, ...]]:
        """Python files of each model's folder that making what is not cached runs, for a dry run."""
        forms: dict[str, set[str]] = {}
        for result in self.results:
            if not result.cached:
                forms.setdefault(result.model, set()).add(result.variant)
        files = {s.name: build_python(s, bool(forms[s.name] - {PLAIN})) for s in self.specs if s.name in forms}
        return {name: python for name, python in files.items() if python}


@dataclass(frozen=True)
class _Run:
    """Settings that the builds of all specs share."""

    root: Path
    target: Target
    progress: Progress
    prover: Prover | None = None
    out: Path = Path()
    variants: tuple[str, ...] = ()
    force: bool = False
    dry_run: bool = False
    refused: Mapping[str, TritonkitError] = field(default_factory=dict)
    gpu: GpuJudge | str = ""
    container: Container | None = None
    card: Card | None = None
    interpreter: Callable[[], Interpreter] = Interpreter.without_server

    def with_environments(self, spec: Spec) -> Spec:
        """The spec with the packages that its Python has for itself; as it is for a dry run."""
        if self.dry_run:
            return spec
        return Environments.of_project(self.root, self.interpreter, self.progress.tell).make(spec)

    def make(self, spec: Spec, jobs: dict[str, Job]) -> tuple[Result, ...]:
        """The served variant and those in `variants`, each made or from the cache; `jobs` is filled by variant."""
        cache = BuildCache.of_project(self.root, self.progress.warn)
        variants = wanted_variants(spec, self.variants, self.target)
        if self.container is not None:
            variants = tuple(in_container(variant, self.container) for variant in variants)
        elif not self.force:
            variants = tuple(as_built(spec, cache, variant) for variant in variants)
        return evaluate(
            spec,
            variants,
            cache,
            threads=machine_cores(),
            force=self.force,
            timed=len(variants) > 1,  # several are compared by their speed too
            dry_run=self.dry_run,
            progress=self.progress,
            jobs=jobs,
            gpu=self.gpu if isinstance(self.gpu, GpuJudge) else None,
        )

    def artifact(self, spec: Spec, made: Made, jobs: dict[str, Job]) -> Artifact | None:
        """The artifact to serve; None for one that a dry run would have to build."""
        if not spec.model.has_network:
            return graph_artifact(spec, BuildCache.of_project(self.root, self.progress.warn), dry_run=self.dry_run)
        results = self.make(spec, jobs)
        made.results += results
        if self.dry_run:
            return next((r.artifact for r in results if r.variant == served_name(spec)), None)
        return choose(spec, results)

    def render(
        self, spec: Spec, artifact: Artifact, job: Job | None, cores: int, members: Members, *, trial: bool
    ) -> list[Rendered]:
        """The Triton models of a spec, rendered after the user's own Python was tried in batches.

        Args:
            trial: whether to load the network once too, as the server will.
        """
        where = trial_target(artifact, self.target)
        models = render_models(spec, artifact, self.root, where, cores, members)
        if job is not None and where == "cpu" and trial and runs_on_cpu(artifact.form):
            _try_network(spec, models, job)
        if (where == "cpu" and self._prove(spec, models, job)) or where != self.target:
            models = render_models(spec, artifact, self.root, self.target, cores, members)
        return models

    def _prove(self, spec: Spec, models: Sequence[Rendered], job: Job | None) -> bool:
        """Whether the user's own Python was tried in batches: then the models must be rendered again."""
        names = untried(models)
        if not names or self.prover is None or not tries_own_python(spec):
            return False
        self.progress.trying(spec)
        with operators_of(spec):
            items = trial_items(spec, job, models)
        verdicts = self.prover(self.root, models, names, items)
        keep_verdicts(spec, models, verdicts)
        return bool(verdicts)


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
    gpu: GpuJudge | str = "",
    container: Container | None = None,
    card: Card | None = None,
    interpreter: Callable[[], Interpreter] = Interpreter.without_server,
) -> Repository:
    """Build what changed, hold it to the quality gate, render it, publish it.

    Args:
        names: folders of `models/`; by default all that are not marked `default: false`. Of the others, only those
            that their pipelines have are read.
        cores: the cores of the machine that will serve; this machine's by default.
        variants: forms to build in addition to the served one: names, `spec` or `all`. They are timed; one that
            cannot be made or loses too much is a result like the others.
        force: whether to build again what the cache holds.
        dry_run: whether to build and write nothing.
        after: Triton model -> a number. A new version's number is above it and above those in `out`; a model that
            does not change keeps its version.
        keep_going: whether to build and publish the other models if one fails; `Repository.failed` has the errors.
        prover: a function that tries a user's own steps and `python` networks in batches. Without it a note says
            that they were not tried.
        refused: models that are not to be built because an attempt had to be ended, each with its error.
        gpu: the judge of variants for target gpu, or the reason why they are judged on the CPU.
        container: NVIDIA's image, whose `trtexec` builds TensorRT plans.
        card: the GPU that is to have room for each network of target gpu.
        interpreter: function that gives the Python of the server, for which packages of models' own are made.

    Raises:
        GateError: the variant to be served is not good enough; the published models stay.
        TritonkitError: a model cannot be built, unless `keep_going` is set.
    """
    # Resolved now: a model's Python may change the working folder.
    out = (out or default_out(root, target)).resolve()
    shown, forms = progress or Progress(), tuple(variants)
    run = _Run(root, target, shown, prover, out, forms, force, dry_run, refused, gpu, container, card, interpreter)
    made = Made(keep_going)
    specs = _read_specs(root, tuple(names), target, made)
    with contextlib.nullcontext() if dry_run else _build_lock(root, run.progress):
        _build_all(run, specs, cores or machine_cores(), made)
        changes, notes = _publish(run, made, None if names or dry_run else kept_specs(root, specs), after)
    if isinstance(gpu, str) and gpu and made.served:
        notes = (f"target {target}: variants were judged on the CPU: {gpu}", *notes)
    notes = (*unmeasured_notes(made.results, made.served), *notes)
    return Repository(out, tuple(specs), tuple(made.results), made.served, changes, notes, made.failed)


def _build_all(run: _Run, specs: Sequence[Spec], cores: int, made: Made) -> None:
    """Fill `made` with the models of all specs, as far as they can be made and do not stand in each other's way."""
    if not run.dry_run:
        recover(run.out)  # before its models are compared
    for spec in specs:
        try:
            if spec.name in run.refused:
                raise run.refused[spec.name]
            with of_model(spec.name), spec.places_in_errors():
                _build(run, spec, cores, made)
        except TritonkitError as error:
            made.fail(spec.name, error)
            made.withhold(spec)
    for name, duplicate in duplicates(made.owners).items():
        made.fail(name, duplicate)


def _build(run: _Run, spec: Spec, cores: int, made: Made) -> None:
    """Make the variants of one spec; render the Triton models of the one to be served, unless they are recognized."""
    made.require_members(spec)
    jobs: dict[str, Job] = {}
    artifact = run.artifact(spec, made, jobs)
    members = {member.name for member in spec.members.values()}
    if artifact is None or not members <= made.inputs.keys():
        return  # nothing of the models can be shown before all artifacts are built
    spec = run.with_environments(spec)
    made.served[spec.name], made.artifacts[spec.name] = artifact.variant, artifact
    inputs = inputs_of(spec, artifact, run.target, cores, {name: made.inputs[name] for name in members})
    made.inputs[spec.name] = inputs
    known = members <= made.recognized.keys() and recognize(run.out, spec, artifact, inputs)
    if known:
        made.recognized[spec.name] = known
        return
    others = made.members_of(spec, lambda one, built, own: render_models(one, built, run.root, run.target, cores, own))
    if run.dry_run:
        models = render_models(spec, artifact, run.root, run.target, cores, others)
    else:
        models = run.render(spec, artifact, jobs.get(artifact.variant), cores, others, trial=True)
        if spec.model.has_network:
            check_card(spec, artifact, [model.plan for model in models], run.card)
        models = [replace(model, inputs=inputs) for model in models]
    made.add(spec, models)


def _publish(
    run: _Run, made: Made, keep: frozenset[str] | None, after: Mapping[str, int] | None
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Publish what was rendered; return all changes and notes. `keep`: the specs that a build of all leaves alone."""
    models, recognized = made.publishable, made.recognized.values()
    changes = [change for own in recognized for change in own.changes]
    notes = [note for own in recognized for note in own.notes] + [note for m in models for note in m.plan.notes]
    if models or recognized or not made.failed:
        if not run.dry_run:
            run.progress.publishing()
        changes += publish(
            run.out,
            models,
            dry_run=run.dry_run,
            all_specs=keep is not None,
            keep=(keep or frozenset()) | made.kept,
            after=after,
            on_failure=made.fail,
        )
    notes += [*missing_callees(run.root, run.out, models), *outdated_callers(run.out, changes, made.served)]
    return tuple(changes), tuple(notes)


def _try_network(spec: Spec, models: Sequence[Rendered], job: Job) -> None:
    """Load the network once as it will be served; the steps of a pipeline are not tried here."""
    for model in models:
        if model.plan.name == spec.network_name:
            # A cached artifact is tried without samples: it answered a request when it was built.
            requests = first_items(job.known_samples[:1], 1, model.plan.max_batch_size > 0)
            try_serving(model, requests[0] if requests else None)


def _read_specs(root: Path, names: tuple[str, ...], target: Target, made: Made) -> list[Spec]:
    """The specs to build; those that cannot be read, or not be built for this target, fail."""
    readable, unreadable = load_readable(root, names, target=target)
    for name, error in unreadable.items():
        made.fail(name, error)
    specs = []
    for spec in readable:
        try:
            with spec.places_in_errors():
                specs.append(for_target(spec, target))
        except TritonkitError as error:
            made.fail(spec.name, error)
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
    container: Container | None = None,
    interpreter: Callable[[], Interpreter] = Interpreter.without_server,
) -> dict[str, tuple[str, str]]:
    """Tracked texts that a fresh render would change: path -> (text now, fresh text).

    Rendered for the cores that the tracked text names, so that any machine may check. Artifacts
    and packages that are not in the cache are made there; the repository is not written.
    """
    run = _Run(root, target, progress or Progress(), prover, container=container, interpreter=interpreter)
    out = (out or default_out(root, target)).resolve()
    made = Made(keep_going=False)
    with _build_lock(root, run.progress):
        specs = _read_specs(root, tuple(names), target, made)
        for spec in specs:
            jobs: dict[str, Job] = {}
            artifact = run.artifact(spec, made, jobs)
            assert artifact is not None  # noqa: S101  a dry run alone has none
            spec = run.with_environments(spec)
            count = cores or recorded_cores(out, spec.name) or machine_cores()
            members = {member.name: made.called[member.name] for member in spec.members.values()}
            made.add(spec, run.render(spec, artifact, jobs.get(artifact.variant), count, members, trial=False))
    for error in duplicates(made.owners).values():
        raise error
    keep = frozenset() if names else kept_specs(root, specs)
    return drift(out, made.rendered, all_specs=not names, keep=keep)


def build_artifact(root: Path, spec: Spec, progress: Progress | None = None) -> Artifact:
    """The artifact that a spec serves, made or from the cache, and held to the quality gate; nothing is published.

    Raises:
        GateError: the artifact is not good enough.
    """
    run = _Run(root, "cpu", progress or Progress())
    with _build_lock(root, run.progress):
        return choose(spec, run.make(spec, {}))


def default_out(root: Path, target: Target) -> Path:
    """`model_repository/`, whose text is tracked, for the CPU; a folder next to it for each other target."""
    return root / ("model_repository" if target == "cpu" else f"model_repository_{target}")


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
