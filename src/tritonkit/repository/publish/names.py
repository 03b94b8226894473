"""Names that do not fit together: models that two specs make, and called models that do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tritonkit.errors import RenderError
from tritonkit.repository.publish.current import Change
from tritonkit.repository.publish.existing import published_configs
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.render.message import parse_text
from tritonkit.repository.render.parts import CALLS

__all__ = ["duplicates", "missing_callees", "outdated_callers"]


def duplicates(models: Iterable[tuple[str, str]]) -> dict[str, RenderError]:
    """Specs with a Triton model of the same name, such as `net` with a step `top_k` and a spec `net_top_k`: neither
    can be published. `models` has each Triton model with its spec."""
    owners: dict[str, str] = {}
    errors: dict[str, RenderError] = {}
    for name, spec in models:
        owner = owners.setdefault(name, spec)
        if owner == spec:
            continue
        for one, other in ((spec, owner), (owner, spec)):
            errors[one] = RenderError(
                f"models/{one}",
                found=f"a Triton model called {name!r}, as models/{other} has one",
                wanted="one model of a name",
                todo="rename the spec, or give its step a `name`",
            )
    return errors


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


def outdated_callers(out: Path, changes: Sequence[Change], built: Collection[str]) -> tuple[str, ...]:
    """A note for each published ensemble of a spec that was not built, and has a model which changed just now."""
    changed = {change.model for change in changes if change.action != "unchanged"}
    notes = []
    for name, spec, config in published_configs(out) if changed else ():
        models = [step.model_name for step in parse_text(config, name).ensemble_scheduling.step]
        if spec not in built and (own := sorted(changed.intersection(models))):
            notes.append(
                f"{name} has {own[0]} in its pipeline, which changed: `tritonkit build {spec}` compares them again"
            )
    return tuple(notes)


def _is_known(name: str, there: Collection[str], specs: Collection[str]) -> bool:
    """Whether a model exists, or belongs to a spec that is not built yet, such as NAME_network."""
    return name in there or any(name == spec or name.startswith(f"{spec}_") for spec in specs)
