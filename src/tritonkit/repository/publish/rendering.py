"""All Triton models of a spec with their texts, rendered with what builds saw of a user's own Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.publish.own_python import kept_verdicts
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.render.config import render_config
from tritonkit.repository.render.engines import engine_of
from tritonkit.repository.render.own_python import Verdicts
from tritonkit.repository.render.plan import plan_models
from tritonkit.repository.render.values import ModelPlan, Target

__all__ = ["Members", "render_models", "trial_target"]

Members = Mapping[str, ModelPlan]
"""The models that callers of other specs in a pipeline see, by the names of these specs."""
_NO_MEMBERS: Members = {}


def render_models(
    spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int, members: Members = _NO_MEMBERS
) -> list[Rendered]:
    """The Triton models of a spec: its pipeline's steps, the network, the ensemble.

    What a build saw of a user's own Python in batches counts, also here.
    """
    models = _rendered(spec, artifact, root, target, cores, {}, members)
    where = trial_target(artifact, target)
    tried = models if where == target else _rendered(spec, artifact, root, where, cores, {}, members)
    verdicts = kept_verdicts(spec, tried)
    return _rendered(spec, artifact, root, target, cores, verdicts, members) if verdicts else models


def trial_target(artifact: Artifact, target: Target) -> Target:
    """The target for which a build renders the models that it tries.

    Trials run on the CPU, also for tritonkit's server on a GPU: files and answers are the same.
    """
    return "cpu" if target == "gpu" and engine_of(artifact) is None else target


def _rendered(
    spec: Spec, artifact: Artifact, root: Path, target: Target, cores: int, verdicts: Verdicts, members: Members
) -> list[Rendered]:
    source = f"{spec.file.relative_to(root)}{f' {spec.name}' if spec.entry else ''}"
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
        for model in plan_models(spec, artifact, target, cores, verdicts, members)
    ]
