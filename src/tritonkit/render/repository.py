"""The whole of a build: specs in, a repository that Triton loads out."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.build import Artifact, BuildPlan, Cache, build, plan
from tritonkit.errors import BuildError, RenderError
from tritonkit.machine import cores as machine_cores
from tritonkit.render.config import render_config
from tritonkit.render.existing import recorded_cores
from tritonkit.render.plan import plan_models
from tritonkit.render.publish import Change, Rendered, drift, publish
from tritonkit.render.values import Target
from tritonkit.spec import Spec, load_all

__all__ = ["BuildRow", "Repository", "build_repository", "check_repository", "default_out"]


@dataclass(frozen=True)
class BuildRow:
    """One spec of a build: what it was built into, or (in a dry run) that it would be."""

    model: str
    variant: str
    cached: bool
    artifact: Artifact | None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        facts: dict[str, Any] = {
            "model": self.model,
            "variant": self.variant,
            "cached": self.cached,
        }
        if self.artifact is not None:
            quality = self.artifact.quality
            facts |= {
                "size_bytes": self.artifact.size_bytes,
                "source_hash": self.artifact.source_hash,
                "quality": None if quality is None else vars(quality).copy(),
            }
        return facts


@dataclass(frozen=True)
class Repository:
    """A model repository on disk, and how a build brought it there."""

    path: Path
    rows: tuple[BuildRow, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


def default_out(root: Path, target: Target) -> Path:
    """`model_repository/`, whose text is tracked, for the CPU; a folder beside it for GPUs."""
    return root / ("model_repository" if target == "cpu" else f"model_repository_{target}")


def build_repository(
    root: Path,
    names: Sequence[str] = (),
    *,
    target: Target = "cpu",
    out: Path | None = None,
    cores: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_start: Callable[[BuildPlan], None] = lambda _: None,
) -> Repository:
    """Build what changed, render it, publish it.

    `names` are folders of `models/`, all by default; `cores` are those of the machine that will
    serve, this one's by default. With `dry_run` nothing is built and nothing written.
    """
    # Resolved now: a model's Python may change the working folder.
    out = (out or default_out(root, target)).resolve()
    specs = load_all(root, tuple(names))
    cache = Cache(root / ".tritonkit" / "cache")
    with _one_at_a_time(root, dry_run):
        plans = [plan(spec, cache, force) for spec in specs]
        rows = [_row(p, cache, dry_run, on_start) for p in plans]
        rendered = [
            model
            for spec, row in zip(specs, rows, strict=True)
            if row.artifact is not None
            for model in _render(spec, row.artifact, root, target, cores or machine_cores())
        ]
        _refuse_twins(rendered)
        changes = publish(out, rendered, dry_run=dry_run, all_specs=not names and not dry_run)
    notes = tuple(note for model in rendered for note in model.plan.notes)
    return Repository(out, tuple(rows), tuple(changes), notes)


def check_repository(
    root: Path, names: Sequence[str] = (), *, target: Target = "cpu", out: Path | None = None,
    cores: int | None = None, on_start: Callable[[BuildPlan], None] = lambda _: None,
) -> dict[str, tuple[str, str]]:  # fmt: skip
    """Tracked texts that a fresh render would change: path -> (text now, fresh text).

    Rendered for the cores that the tracked text names, so that any machine may check. Artifacts
    that are not in the cache are built there; the repository is not written.
    """
    out = (out or default_out(root, target)).resolve()
    cache = Cache(root / ".tritonkit" / "cache")
    rendered = []
    with _one_at_a_time(root, dry_run=False):
        for spec in load_all(root, tuple(names)):
            artifact = build(plan(spec, cache), cache, on_start)
            count = cores or recorded_cores(out, spec.name) or machine_cores()
            rendered += _render(spec, artifact, root, target, count)
    _refuse_twins(rendered)
    return drift(out, rendered, all_specs=not names)


def _row(
    what: BuildPlan, cache: Cache, dry_run: bool, on_start: Callable[[BuildPlan], None]
) -> BuildRow:
    artifact = what.cached if dry_run else build(what, cache, on_start)
    return BuildRow(what.spec.name, what.variant, what.cached is not None, artifact)


def _render(
    spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int
) -> list[Rendered]:
    source = str(spec.file.relative_to(root))
    return [
        Rendered(model, render_config(model, source=source, target=target, cores=cores), artifact)
        for model in plan_models(spec, artifact, target, cores)
    ]


def _refuse_twins(models: Sequence[Rendered]) -> None:
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


@contextmanager
def _one_at_a_time(root: Path, dry_run: bool) -> Iterator[None]:
    """Let a second build wait for the first; the lock goes with the process that holds it."""
    if dry_run:
        yield
        return
    file = root / ".tritonkit" / "build.lock"
    try:
        file.parent.mkdir(exist_ok=True)
        lock = file.open("w")
    except OSError as error:
        raise BuildError(
            str(file),
            found=f"it cannot be written: {error.strerror or error}",
            todo="free space, or correct its permissions",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
