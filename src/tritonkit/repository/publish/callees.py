"""Models that a Python model calls and that do not exist: a build reports them before a server leaves out the
caller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.render.parts import CALLS

__all__ = ["missing_callees"]


def missing_callees(root: Path, out: Path, models: Sequence[Rendered]) -> tuple[str, ...]:
    """A note for each model whose `calls` names one that neither the repository nor the project has.

    This is not an error: a server may get another repository into which that model is copied.
    """
    specs = [folder.name for folder in (root / "models").glob("*")]
    there = {model.plan.name for model in models} | {folder.name for folder in out.glob("*")}
    notes = []
    for model in models:
        called = model.plan.parameters.get(CALLS, "").split()
        if missing := [name for name in called if not _is_known(name, there, specs)]:
            names, it = ", ".join(missing), "them" if len(missing) > 1 else "it"
            notes.append(
                f"{model.plan.name}: calls {names}, and neither models/ nor {out.name}/ has {it}: a server of this"
                f" repository leaves {model.plan.name} out. Correct `calls`, or put {it} into the repository"
            )
    return tuple(notes)


def _is_known(name: str, there: Collection[str], specs: Collection[str]) -> bool:
    """Whether a model exists, or belongs to a spec that is not built yet, such as NAME_network."""
    return name in there or any(name == spec or name.startswith(f"{spec}_") for spec in specs)
