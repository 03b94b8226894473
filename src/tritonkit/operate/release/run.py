"""A release from build to end: candidate, check, copies, steps, and the next version in all replicas; or back."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import ServerDied, TritonkitError, UsageError
from tritonkit.operate.release import history
from tritonkit.operate.release.candidate import Candidate, build_candidate
from tritonkit.operate.release.check import Checked, check_candidate
from tritonkit.operate.release.judge import RuleState, Tally
from tritonkit.operate.release.shadow import ShadowCounts
from tritonkit.operate.release.steps import ReleaseStep, ReleaseTerms, Status, Steps, Tell
from tritonkit.operate.stack.control import StackSession
from tritonkit.operate.stack.state import FOLDER, read_state
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.pipeline import default_out
from tritonkit.repository.publish import replace_models
from tritonkit.repository.publish.numbers import newest, remember

__all__ = ["Released", "release", "rollback"]


@dataclass(frozen=True)
class Released:
    """A release that went through.

    Args:
        changes: the changes that are served since then, such as `digits_network 2`.
    """

    model: str
    changes: tuple[str, ...]
    checked: Checked
    steps: tuple[ReleaseStep, ...]
    candidate: Tally
    stable: Tally
    findings: tuple[RuleState, ...]
    shadow: ShadowCounts | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "model": self.model,
            "changes": self.changes,
            "seconds": round(self.seconds, 3),
            "checked": {
                "requests": self.checked.requests,
                "quality": self.checked.quality and asdict(self.checked.quality),
            },
            "steps": [asdict(step) for step in self.steps],
            "candidate": self.candidate.to_dict(),
            "stable": self.stable.to_dict(),
            "rules": [finding.to_dict() for finding in self.findings],
            "shadow": self.shadow and self.shadow.to_dict(),
        }


def release(
    root: Path, model: str, terms: ReleaseTerms, *, progress: Progress | None = None, tell: Tell = lambda status: None
) -> Released:
    """Bring the next version of a model to the stack that runs, step by step.

    If it ends before its last step is done, even if this process is killed, all requests go to the previous version.

    Args:
        progress: called with the progress of the build.
        tell: called with the progress of the release.

    Raises:
        ReleaseAborted: a rule was broken, the candidate died, or too few requests came.
        UsageError: no stack runs, or there is no such model or nothing to release.
        BuildError, ClientError, ServerError: the candidate cannot be built, or does not answer right.
    """
    began = time.monotonic()
    with StackSession(root) as stack:
        served_facts = stack.ask("served")
        served, own = Path(served_facts["repository"]), Path(served_facts["source"])
        candidate = build_candidate(root, model, own, served, root / FOLDER / "candidate", progress)
        _refuse_copies(root, model, terms)
        try:
            tell(Status(f"starting the candidate with {', '.join(candidate.changes)}"))
            target = {"repository": str(candidate.repository), "model": model}
            facts = stack.ask("start", **target, models=candidate.models)
            address = facts["grpc"]
            checked = check_candidate(root, candidate, address, lambda text: tell(Status(text)))
            run = Steps(root, stack, candidate, facts, terms, tell)
            shadow = run.copies() if terms.shadow_percent else None
            steps = run.steps()
            tell(Status("loading it in all replicas", 100.0))
            _install(root, stack, candidate, served)
            judge = run.judge
            stack.ask("end")
        finally:
            shutil.rmtree(candidate.repository, ignore_errors=True)
    return Released(
        model,
        candidate.changes,
        checked,
        tuple(steps),
        judge.candidate,
        judge.stable,
        tuple(judge.findings),
        shadow,
        time.monotonic() - began,
    )


def rollback(root: Path, model: str) -> history.Former:
    """Serve what was served before the last release of a model: in the stack, if one runs, and in the repository.

    Raises:
        UsageError: no release is known, the last one was the model's first, or another one is going on.
        PublishError: the repository cannot be written.
        ServerError, ClientError: a replica does not load the version; all replicas serve the same as before.
    """
    former, own = history.latest(root, model), default_out(root, "cpu")
    if not former.models:
        raise UsageError(
            f"models/{model}",
            found="the last release was its first: nothing was served before",
            wanted="a version before that one",
            todo=f"to serve it no more: remove models/{model}, then tritonkit build, down, up",
        )
    if read_state(root) is None:
        remember(root, model, newest(own, model))
        replace_models(former.folder, own, model, former.models)
    else:
        with StackSession(root) as stack, _uninterrupted():
            served = stack.ask("served")
            for place in (served["repository"], served["source"]):
                remember(root, model, newest(Path(place), model))
            target = {"repository": str(former.folder), "model": model}
            stack.ask("install", **target, models=former.models)
    history.forget(former)
    return former


def _refuse_copies(root: Path, model: str, terms: ReleaseTerms) -> None:
    if terms.shadow_percent and not load(root / "models" / model, root).model.serving.idempotent:
        raise UsageError(
            "--shadow",
            found=f"models/{model} does not say that a request may run twice",
            wanted="serving: {idempotent: true}",
            todo="say so, if it is; or release without copies",
        )


def _install(root: Path, stack: StackSession, candidate: Candidate, served: Path) -> None:
    """Install the version in all replicas and in the project's repository, or in none."""
    former = history.keep(root, served, candidate.model, candidate.changes)
    with _uninterrupted():
        try:
            target = {"repository": str(candidate.repository), "model": candidate.model}
            stack.ask("install", **target, models=candidate.models)
        except ServerDied:  # it may have been installed before
            raise
        except TritonkitError:
            history.forget(former)
            raise
    history.prune(root, candidate.model)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C does nothing in the block: leaving would not undo what the stack does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
