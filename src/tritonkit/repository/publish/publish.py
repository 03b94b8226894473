"""Write rendered models into a repository: a new version appears complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from tritonkit.disk import locked, reason, sync
from tritonkit.errors import PublishError
from tritonkit.repository.environments.environment import PACKAGES
from tritonkit.repository.export import Artifact, sha256_file
from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.modelspec import VersionPolicy
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.publish import manifest, staging
from tritonkit.repository.publish.configurations import config_name, named_config
from tritonkit.repository.publish.current import RECORD, Change, compare
from tritonkit.repository.publish.existing import left_over, refuse_foreign
from tritonkit.repository.publish.integrity import CONFIG, MANIFEST, compiled, versions
from tritonkit.repository.publish.records import write_record
from tritonkit.repository.publish.staging import Staging
from tritonkit.repository.render.own_python import wants_proof
from tritonkit.repository.render.parts import CALLS
from tritonkit.repository.render.values import ModelPlan

__all__ = [
    "Change",
    "Rendered",
    "disk_errors",
    "drift",
    "publish",
    "recover",
    "remove_models",
    "require_space",
    "staged",
]

_LINKED_BYTES = 64 << 20
_COMPILED = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class Rendered:
    """One Triton model, ready to be written.

    `fewer_cores`: number of cores -> the configuration for a server that has no more. `verdict`: the result of trying a
    user's own Python in batches. `inputs`: the hash of everything that the rendering read (`current.inputs_of`).
    """

    plan: ModelPlan
    config: str
    artifact: Artifact
    fewer_cores: Mapping[int, str] = field(default_factory=dict)
    verdict: Independence | None = None
    inputs: str = ""

    @property
    def texts(self) -> dict[str, bytes]:
        """The text files next to the versions that are under version control: config.pbtxt, those for fewer cores,
        labels."""
        files = {name: source.read_bytes() for name, source in self.plan.model_files.items()}
        fewer = {named_config(config_name(cores)): text.encode() for cores, text in self.fewer_cores.items()}
        return {CONFIG: self.config.encode(), **fewer, **files}

    @cached_property
    def unversioned(self) -> dict[str, bytes]:
        """All files next to the versions, with the manifest that names them."""
        warmup = {f"warmup/{name}": data for name, data in self.plan.warmup_files.items()}
        files = {**self.texts, **warmup}
        if MANIFEST in files:
            raise PublishError(
                f"models/{self.artifact.model}",
                found=f"a file of {self.plan.name} is called {MANIFEST}",
                wanted="another name: the build writes a file of that name",
            )
        return {**files, MANIFEST: manifest.describe_unversioned(self.plan, files).encode()}


@dataclass(frozen=True)
class _Update:
    """The next state of one model, decided and not yet written.

    `files` and `unversioned` have the SHA-256 of each file of the version and next to the versions.
    """

    rendered: Rendered
    files: Mapping[str, str]
    unversioned: Mapping[str, str]
    change: Change


def publish(
    out: Path,
    models: Sequence[Rendered],
    *,
    dry_run: bool = False,
    all_specs: bool = False,
    keep: Set[str] = frozenset(),
    after: Mapping[str, int] | None = None,
    on_failure: Callable[[str, PublishError], None] | None = None,
) -> list[Change]:
    """Bring `out` to the state of `models`, steps before the ensembles that use them.

    Unchanged models are not touched. Models that a spec no longer makes are removed; with `all_specs`, also those of
    specs that no longer exist. Models of the specs `keep` stay. A new version's number is above the existing ones and
    above `after`, model -> number.

    Args:
        on_failure: a function that is called for a spec whose models do not fit on the disk; that spec is left out.

    Raises:
        PublishError: the disk is full or not writable; everything is as it was.
    """
    with ExitStack() as stack:
        stack.enter_context(disk_errors(out))
        if not dry_run:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out))
            staging.recover(out)
        updates, stale = _plan(out, models, all_specs, keep, after or {}, on_failure)
        if not dry_run:
            _write(out, [update for update in updates if update.change.action != "unchanged"])
            _remove(out, stale)
            _remove_compiled([out / update.change.model for update in updates])
            _record(updates)
    return [*(update.change for update in updates), *(Change(name, "removed", 0) for name in stale)]


def recover(out: Path) -> bool:
    """Finish or undo a publish that was killed; return whether there was anything to do.

    Waits for a publish that is running.
    """
    if not out.is_dir():
        return False
    with disk_errors(out), locked(out):
        return staging.recover(out)


def drift(
    out: Path, models: Sequence[Rendered], all_specs: bool = False, keep: Set[str] = frozenset()
) -> dict[str, tuple[str, str]]:
    """Tracked texts that differ from a fresh render: path -> (current text, fresh text)."""
    different = {}
    for rendered in models:
        for name, fresh in rendered.texts.items():
            path = out / rendered.plan.name / name
            now = path.read_bytes() if path.is_file() else b""
            if now != fresh:
                texts = (now.decode(errors="replace"), fresh.decode(errors="replace"))
                different[str(path)] = texts
        for path in sorted((out / rendered.plan.name).glob(named_config("*"))):
            if named_config(path.stem) not in rendered.texts:
                different[str(path)] = (path.read_text(errors="replace"), "")
    for name in _stale(out, models, all_specs, keep):
        different[str(out / name / CONFIG)] = ((out / name / CONFIG).read_text(), "")
    return different


def _plan(
    out: Path,
    models: Sequence[Rendered],
    all_specs: bool,
    keep: Set[str],
    after: Mapping[str, int],
    on_failure: Callable[[str, PublishError], None] | None,
) -> tuple[list[_Update], list[str]]:
    """The models to publish and those to remove; nothing is written."""
    planned: list[_Update] = []
    for spec, group in groupby(models, key=lambda rendered: rendered.artifact.model):
        try:
            own = list(group)
            for rendered in own:
                refuse_foreign(out / rendered.plan.name, spec, all_specs)
            planned += [_plan_model(out, model, after.get(model.plan.name, 0)) for model in own]
        except PublishError as error:
            if on_failure is None:
                raise
            on_failure(spec, error)
            keep = keep | {spec}
    return planned, _stale(out, models, all_specs, keep)


def _stale(out: Path, models: Sequence[Rendered], all_specs: bool, keep: Set[str]) -> list[str]:
    planned = {rendered.plan.name for rendered in models}
    specs = {rendered.artifact.model for rendered in models}
    return left_over(out, planned, specs, all_specs, keep)


def _plan_model(out: Path, rendered: Rendered, after: int) -> _Update:
    plan, folder = rendered.plan, out / rendered.plan.name
    built = {rendered.artifact.folder / n: digest for n, digest in rendered.artifact.files.items()}
    files = {name: built.get(source) or sha256_file(source) for name, source in sorted(plan.version_files.items())} | {
        name: sha256(text).hexdigest() for name, text in sorted(plan.version_texts.items())
    }
    unversioned = {name: sha256(data).hexdigest() for name, data in rendered.unversioned.items()}
    action, version = compare(folder, files, unversioned)
    if action == "new version":
        version = max(version, after) + 1
    present, specific = versions(folder), plan.version_policy.specific
    if specific and set(specific).isdisjoint([*present, version]):
        raise PublishError(
            str(folder),
            found=f"version_policy names {list(specific)}, and there is no such version",
            wanted=f"one of {sorted({*present, version})}",
            todo="correct version_policy: Triton refuses a model without a version to serve",
        )
    return _Update(rendered, files, unversioned, Change(plan.name, action, version))


def _write(out: Path, updates: Sequence[_Update]) -> None:
    """Stage the next state of every model, then put them in place together."""
    if not updates:
        return
    _require_space_for(out, updates)
    with Staging(out) as stage:
        for update in updates:
            _stage(stage.new(update.change.model), out / update.change.model, update)
        stage.commit([update.change.model for update in updates])


def _remove_compiled(folders: Sequence[Path]) -> None:
    """Remove compiled Python, which a server without tritonkit's environment leaves and which is never published."""
    for file in [finding.file for folder in folders for finding in compiled(folder)]:
        file.unlink()


def _record(updates: Sequence[_Update]) -> None:
    """Record what was published next to each artifact, so that the next build can recognize it.

    Left out are specs whose state depends on more than their inputs and these files: other versions, the existence of
    called models, or Python that is still to be tried.
    """
    for folder, group in groupby(updates, key=lambda update: update.rendered.artifact.folder):
        own = list(group)
        plans = [update.rendered.plan for update in own]
        inputs = own[0].rendered.inputs
        if not inputs or any(
            plan.version_policy.specific or CALLS in plan.parameters or wants_proof(plan) for plan in plans
        ):
            continue
        facts = {
            "inputs": inputs,
            "models": {update.change.model: [update.files, update.unversioned] for update in own},
            "notes": [note for plan in plans for note in plan.notes],
        }
        write_record(folder / RECORD, facts)


def _require_space_for(out: Path, updates: Sequence[_Update]) -> None:
    needed = 0
    for update in updates:
        if update.change.action != "new version":
            continue
        cache = update.rendered.artifact.folder
        for source in update.rendered.plan.version_files.values():
            if not _is_linked(source, cache) or source.stat().st_dev != out.stat().st_dev:
                needed += source.stat().st_size
    require_space(out, needed)


def require_space(out: Path, needed: int) -> None:
    """PublishError, before anything is written, if `needed` bytes do not fit on the repository's disk."""
    if needed > _free_bytes(out):
        raise _disk_full(out, f"{format_bytes(needed)} for the new versions next to the old ones")


def _disk_full(out: Path, wanted: str) -> PublishError:
    return PublishError(
        str(out),
        found=f"the disk is full: {format_bytes(_free_bytes(out))} are free",
        wanted=wanted,
        todo="free space and repeat it: the served versions are still in place",
    )


def _free_bytes(out: Path) -> int:
    return shutil.disk_usage(next(path for path in (out, *out.parents) if path.exists())).free


def _stage(staged: Path, current: Path, update: _Update) -> None:
    """The whole next state of a model's folder; older versions are linked, not copied."""
    plan = update.rendered.plan
    for number in _retained(versions(current), update.change.version, plan.version_policy):
        shutil.copytree(current / str(number), staged / str(number), copy_function=_link, ignore=_COMPILED)
    version = staged / str(update.change.version)
    if not version.exists():
        version.mkdir()
        for name, source in plan.version_files.items():
            (version / name).parent.mkdir(parents=True, exist_ok=True)
            _place(source, version / name, update.rendered.artifact.folder)
            if sha256_file(version / name) != update.files[name]:
                raise PublishError(
                    str(source),
                    found="its content has changed since it was built",
                    wanted=f"sha256 {update.files[name]}",
                    todo="build again, and check the disk if it comes back",
                )
        for name, content in plan.version_texts.items():
            (version / name).write_bytes(content)
        text = manifest.describe(
            plan, update.rendered.artifact, update.files, update.change.version, update.rendered.verdict
        )
        (version / MANIFEST).write_text(text)
    for name, data in update.rendered.unversioned.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(data)


def _place(source: Path, target: Path, cache: Path) -> None:
    """Copy a file of a version. A large one from the build's cache, where nothing changes in place, is linked."""
    if _is_linked(source, cache):
        _link(str(source), str(target))
    else:
        shutil.copyfile(source, target)


def _is_linked(source: Path, cache: Path) -> bool:
    cached = source.parent == cache or PACKAGES in source.parts
    return cached and source.stat().st_size >= _LINKED_BYTES


def _retained(present: Sequence[int], new: int, policy: VersionPolicy) -> list[int]:
    """Older versions that stay: the versions that the policy serves, and the previous one for a rollback."""
    older = [number for number in present if number <= new]
    if policy.all:
        return older
    if policy.specific:
        return [number for number in older if number in policy.specific or number == older[-1]]
    return older[-((policy.latest or 1) + (1 if new in older else 0)) :]


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _remove(out: Path, names: Sequence[str]) -> None:
    """Take models out of the repository, each in one step, then delete them."""
    for name in names:
        with Staging(out) as stage:
            (out / name).rename(stage.folder / name)
            sync(out)


def remove_models(out: Path, names: Sequence[str]) -> None:
    """Take models out of a repository, each in one step. PublishError where it cannot be written."""
    if names:
        with disk_errors(out, "--repository"), locked(out):
            _remove(out, names)


@contextmanager
def staged(out: Path) -> Iterator[Staging]:
    """A place for models that no build made, such as those of a backup; its `commit` puts them in place.

    Other publishes wait meanwhile. PublishError, with everything as it was, when the disk is full or not writable.
    """
    with disk_errors(out, "--repository"):
        out.mkdir(parents=True, exist_ok=True)
        with locked(out), Staging(out) as stage:
            yield stage


@contextmanager
def disk_errors(out: Path, option: str = "--out") -> Iterator[None]:
    """Turn failures of the file system into one error, with the repository as it was."""
    try:
        yield
    except OSError as error:
        number, why = reason(error)
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(out, "room for the new versions next to the old ones") from error
        raise PublishError(
            str(error.filename or out),
            found=f"it cannot be written: {why}",
            wanted="a folder this user may write",
            todo=f"correct it, or name another {option}: the served versions are still in place",
        ) from error
