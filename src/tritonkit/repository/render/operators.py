"""Libraries of custom operators in a model's configuration, where its server finds them."""

from __future__ import annotations

from dataclasses import replace

from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.fields import ModelOperations
from tritonkit.repository.render.values import ModelPlan, Target

__all__ = ["libraries_note", "with_libraries"]

_REPOSITORY = "/models"
"""Place of the repository in every container that tritonkit describes (docker-compose.yml, `tritonkit manifests`)."""


def with_libraries(plan: ModelPlan, spec: Spec, target: Target) -> ModelPlan:
    """The plan of a spec's network with the libraries of `network.op_library`.

    They lie next to the network, where tritonkit's backends look first. NVIDIA's backend hands a name to the system's
    loader: it gets a whole path, without the version, which no configuration knows.
    """
    names = spec.model.network.op_library_names
    if not names or plan.model_operations.op_library_filename:
        return plan
    if target != "nvidia":
        return replace(plan, model_operations=ModelOperations(op_library_filename=names))
    files = {name: file for name, file in plan.version_files.items() if name in names}
    paths = tuple(f"{_REPOSITORY}/{plan.name}/{name}" for name in names)
    return replace(
        plan,
        model_operations=ModelOperations(op_library_filename=paths),
        version_files={name: file for name, file in plan.version_files.items() if name not in files},
        model_files={**plan.model_files, **files},
    )


def libraries_note(plan: ModelPlan, spec: Spec, target: Target) -> str:
    """A note about the place from which NVIDIA's backend loads a spec's libraries; empty where it does not matter."""
    own = spec.model.serving.model_operations.op_library_filename
    if target != "nvidia" or own or not spec.model.network.op_library_names:
        return ""
    return (
        f"NVIDIA's backend loads {', '.join(plan.model_operations.op_library_filename)}: in tritonkit's containers the"
        f" repository lies at {_REPOSITORY}; for another place set serving.model_operations.op_library_filename"
    )
