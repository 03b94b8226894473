"""Write rendered models into a repository: a new version appears complete or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from tritonkit.disk import sync
from tritonkit.errors import PublishError
from tritonkit.export import Artifact, sha256_file
from tritonkit.publish import manifest, staging
from tritonkit.publish.existing import CONFIG, left_over, refuse_foreign, versions
from tritonkit.publish.staging import Staging
from tritonkit.render.values import ModelPlan
from tritonkit.spec import VersionPolicy
from tritonkit.spec.units import format_bytes

__all__ = ["Change", "Rendered", "drift", "publish", "recover"]


@dataclass(frozen=True)
class Rendered:
    """One Triton model, ready to be written."""

    plan: ModelPlan
    config: str
    artifact: Artifact

    @property
    def texts(self) -> dict[str, bytes]:
        """What lies beside the versions under version control: config.pbtxt and labels."""
        files = {name: source.read_bytes() for name, source in self.plan.model_files.items()}
        return {CONFIG: self.config.encode(), **files}

    @cached_property
    def beside(self) -> dict[str, bytes]:
        """All that lies beside the versions, with the manifest that names it."""
        warmup = {f"warmup/{name}": data for name, data in self.plan.warmup_files.items()}
        files = {**self.texts, **warmup}
        if manifest.FILE_NAME in files:
            raise PublishError(
                f"models/{self.artifact.model}",
                found=f"a file of {self.plan.name} is called {manifest.FILE_NAME}",
                wanted="another name: the published model has its own file of that name",
            )
        return {**files, manifest.FILE_NAME: manifest.describe_beside(self.plan, files).encode()}


@dataclass(frozen=True)
class Change:
    """What publishing one model does, or did."""

    model: str
    action: Literal["new version", "new configuration", "unchanged", "removed"]
    version: int


@dataclass(frozen=True)
class _Next:
    """The next state of one model, decided and not yet written."""

    rendered: Rendered
    files: Mapping[str, str]
    version: int
    change: Change


def publish(
    out: Path, models: Sequence[Rendered], *, dry_run: bool = False, all_specs: bool = False,
    keep: Set[str] = frozenset(),
) -> list[Change]:  # fmt: skip
    """Bring `out` to the state of `models`, steps before the ensembles that use them.

    Unchanged models are not touched. Models that a spec made before and makes no longer are
    removed, with `all_specs` also those of specs that are gone; those of the specs `keep` stay.
    PublishError, with everything as it was, when the disk is full or not writable.
    """
    with _told(out):
        if dry_run:
            return _changes(*_next(out, models, all_specs, keep))
        out.mkdir(parents=True, exist_ok=True)
        with _locked(out):
            staging.recover(out)
            nexts, stale = _next(out, models, all_specs, keep)
            _write(out, [n for n in nexts if n.change.action != "unchanged"])
            _remove(out, stale)
            return _changes(nexts, stale)


def _next(
    out: Path, models: Sequence[Rendered], all_specs: bool, keep: Set[str]
) -> tuple[list[_Next], Sequence[str]]:
    """What is to be published, and which models are to go; nothing is written."""
    stale = _stale(out, models, all_specs, keep)
    for rendered in models:
        refuse_foreign(out / rendered.plan.name, rendered.artifact.model, all_specs)
    return [_decide(out, rendered) for rendered in models], stale


def _stale(out: Path, models: Sequence[Rendered], all_specs: bool, keep: Set[str]) -> list[str]:
    planned = {rendered.plan.name for rendered in models}
    specs = {rendered.artifact.model for rendered in models}
    return left_over(out, planned, specs, all_specs, keep)


def recover(out: Path) -> bool:
    """Finish or undo what a killed publish left in a repository; whether there was anything.

    Waits for a publish that is going on.
    """
    if not out.is_dir():
        return False
    with _told(out), _locked(out):
        return staging.recover(out)


def _changes(nexts: Sequence[_Next], stale: Sequence[str]) -> list[Change]:
    return [n.change for n in nexts] + [Change(name, "removed", 0) for name in stale]


def drift(
    out: Path, models: Sequence[Rendered], all_specs: bool = False, keep: Set[str] = frozenset()
) -> dict[str, tuple[str, str]]:
    """Tracked texts that differ from a fresh render: path -> (text now, fresh text)."""
    different = {}
    for rendered in models:
        for name, fresh in rendered.texts.items():
            path = out / rendered.plan.name / name
            now = path.read_bytes() if path.is_file() else b""
            if now != fresh:
                different[str(path)] = (
                    now.decode(errors="replace"),
                    fresh.decode(errors="replace"),
                )
    for name in _stale(out, models, all_specs, keep):
        different[str(out / name / CONFIG)] = ((out / name / CONFIG).read_text(), "")
    return different


def _decide(out: Path, rendered: Rendered) -> _Next:
    plan, folder = rendered.plan, out / rendered.plan.name
    files = _digests(rendered)
    present = versions(folder)
    latest = present[-1] if present else 0
    if not latest or not manifest.is_whole(folder / str(latest), files):
        version, action = latest + 1, "new version"
    elif not _is_beside(folder, rendered):
        version, action = latest, "new configuration"
    else:
        version, action = latest, "unchanged"
    if not _serves(plan.version_policy, [*present, version]):
        raise PublishError(
            str(folder),
            found=f"version_policy names {list(plan.version_policy.specific)}, and there is no such version",
            wanted=f"one of {sorted({*present, version})}",
            todo="correct version_policy: Triton refuses a model of which it may serve nothing",
        )
    return _Next(rendered, files, version, Change(plan.name, action, version))  # type: ignore[arg-type]


def _serves(policy: VersionPolicy, present: Sequence[int]) -> bool:
    return not policy.specific or not set(policy.specific).isdisjoint(present)


def _digests(rendered: Rendered) -> dict[str, str]:
    known = {rendered.artifact.folder / n: digest for n, digest in rendered.artifact.files.items()}
    return {
        name: known.get(source) or sha256_file(source)
        for name, source in sorted(rendered.plan.version_files.items())
    }


def _is_beside(folder: Path, rendered: Rendered) -> bool:
    """Whether what lies beside the versions is as it would be written now; a file nobody asks for
    counts as a difference in warmup/ only."""
    if {f"warmup/{path.name}" for path in folder.glob("warmup/*")} - rendered.beside.keys():
        return False
    try:
        return all((folder / name).read_bytes() == data for name, data in rendered.beside.items())
    except OSError:
        return False


def _write(out: Path, nexts: Sequence[_Next]) -> None:
    if not nexts:
        return
    _hold_room(out, nexts)
    with Staging(out) as place:
        for item in nexts:
            _stage(place.new(item.rendered.plan.name), out / item.rendered.plan.name, item)
        place.commit([item.rendered.plan.name for item in nexts])


def _hold_room(out: Path, nexts: Sequence[_Next]) -> None:
    """PublishError, before anything is written, if the new versions do not fit on the disk."""
    needed = sum(
        source.stat().st_size
        for item in nexts
        if item.change.action == "new version"
        for source in item.rendered.plan.version_files.values()
    )
    if needed > shutil.disk_usage(_existing(out)).free:
        raise _disk_full(out, f"{format_bytes(needed)} for the new versions beside the old ones")


def _disk_full(out: Path, wanted: str) -> PublishError:
    free = shutil.disk_usage(_existing(out)).free
    return PublishError(
        str(out),
        found=f"the disk is full: {format_bytes(free)} are free",
        wanted=wanted,
        todo="free space and build again: what was served before is still in place",
    )


def _stage(staged: Path, current: Path, item: _Next) -> None:
    """The whole next state of a model's folder; older versions are linked, not copied."""
    plan = item.rendered.plan
    for number in _kept(versions(current), item.version, plan.version_policy):
        shutil.copytree(current / str(number), staged / str(number), copy_function=_link)
    version = staged / str(item.version)
    if not version.exists():
        version.mkdir()
        for name, source in plan.version_files.items():
            shutil.copyfile(source, version / name)
            if sha256_file(version / name) != item.files[name]:
                raise PublishError(
                    str(source),
                    found="its content has changed since it was built",
                    wanted=f"sha256 {item.files[name]}",
                    todo="build again, and look after the disk if it comes back",
                )
        text = manifest.describe(plan, item.rendered.artifact, item.files, item.version)
        (version / manifest.FILE_NAME).write_text(text)
    for name, data in item.rendered.beside.items():
        (staged / name).parent.mkdir(exist_ok=True)
        (staged / name).write_bytes(data)


def _kept(present: Sequence[int], new: int, policy: VersionPolicy) -> list[int]:
    """Older versions that stay: those the policy serves, and the one before, to go back to."""
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
        with Staging(out) as place:
            (out / name).rename(place.folder / name)
            sync(out)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One publish at a time into a repository, whichever clone it comes from."""
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def _told(out: Path) -> Iterator[None]:
    """Failures of the file system become one error, with the repository as it was."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(out, "room for the new versions beside the old ones") from error
        raise PublishError(
            str(error.filename or out),
            found=f"it cannot be written: {error.strerror or error}",
            wanted="a folder this user may write",
            todo="correct it, or name another --out: what was served before is still in place",
        ) from error


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
