"""Whether a repository may be served: it is as it was published, or, where a key is named, as its owner signed it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonkit.operate.store import signature
from tritonkit.operate.store.contents import read_contents
from tritonkit.publish.damage import damage
from tritonkit.publish.integrity import Progress, verify
from tritonkit.serve.repository import read_models

__all__ = ["require_whole"]


def require_whole(
    repository: Path, models: Sequence[str] = (), *, public_key: Any = None,
    progress: Progress = lambda done, total: None,
) -> None:  # fmt: skip
    """Hash every file that is served and refuse what differs; some 2 s for each GiB.

    Args:
        repository: a folder of models.
        models: names, whose parts are looked at too; all by default, and then none may be there that is not signed.
        public_key: an `Ed25519PublicKey` that must have signed every file; None: the manifests decide.
        progress: called with the bytes hashed so far and in all.

    Raises:
        UsageError: there is no such repository or model.
        ServerError: a file is not as it was published or signed, is missing or was added.
    """
    names = tuple(model.name for model in read_models(repository, models or None))
    if public_key is None:
        findings = verify(repository, names, progress=progress)
    else:
        chosen = names if models else ()
        contents = read_contents(repository, chosen, progress=progress)
        text = signature.read(repository)
        findings = signature.check(contents, text, public_key, repository, chosen)
    if findings:
        raise damage(findings)
