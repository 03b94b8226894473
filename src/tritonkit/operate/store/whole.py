"""Whether a repository may be served: it is as it was published, or, where a key is named, as its owner signed it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonkit.operate.store import signature
from tritonkit.operate.store.contents import read_contents
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import Damage, Progress, compiled, is_compiled, verify
from tritonkit.serve.repository import read_models

__all__ = ["require_whole", "unsigned"]


def require_whole(
    repository: Path,
    models: Sequence[str] = (),
    *,
    public_key: Any = None,
    copied: bool = False,
    progress: Progress = lambda done, total: None,
) -> None:
    """Hash every served file and refuse differences; this takes about 2 s for each GiB.

    Args:
        repository: a folder of models.
        models: names of the models to check, together with their parts; by default all, and then none may be unsigned.
        public_key: an `Ed25519PublicKey`, whose owner must have signed every file; None: the manifests decide.
        copied: whether a copy is served, which has no compiled Python; then compiled Python is not refused.
        progress: called with the number of bytes hashed so far and in all.

    Raises:
        UsageError: there is no such repository or model.
        ServerError: a file is not as it was published or signed, is missing or was added.
    """
    names = tuple(model.name for model in read_models(repository, models or None))
    if public_key is None:
        findings = verify(repository, names, progress=progress)
    else:
        findings = unsigned(repository, names if models else (), public_key, progress)
    if findings := [finding for finding in findings if not (copied and is_compiled(finding.file))]:
        raise damage(findings)


def unsigned(repository: Path, models: Sequence[str], public_key: Any, progress: Progress) -> list[Damage]:
    """The differences between a repository and what the owner of the key signed, compiled Python first.

    Args:
        models: names of the models to check; by default all, and then none may be missing or unsigned.
    """
    contents = read_contents(repository, models, progress=progress)
    text = signature.read(repository)
    findings = [finding for name in contents for finding in compiled(repository / name)]
    return [*findings, *signature.check(contents, text, public_key, repository, models)]
