"""From a `Spec` and its `Artifact` to a repository that Triton loads."""

from tritonkit.render.batching import DEFAULT_MAX_BATCH_SIZE
from tritonkit.render.config import check_text, render_config
from tritonkit.render.existing import versions
from tritonkit.render.integrity import Finding, Verifier, verify
from tritonkit.render.plan import plan_models
from tritonkit.render.publish import Change, recover
from tritonkit.render.repository import (
    Repository,
    build_repository,
    check_repository,
    default_out,
)
from tritonkit.render.values import (
    EnsembleStep,
    InstancePlan,
    ModelPlan,
    Target,
    TensorPlan,
    WarmupData,
    WarmupPlan,
)

__all__ = [
    "DEFAULT_MAX_BATCH_SIZE",
    "Change",
    "EnsembleStep",
    "Finding",
    "InstancePlan",
    "ModelPlan",
    "Repository",
    "Target",
    "TensorPlan",
    "Verifier",
    "WarmupData",
    "WarmupPlan",
    "build_repository",
    "check_repository",
    "check_text",
    "default_out",
    "plan_models",
    "recover",
    "render_config",
    "verify",
    "versions",
]
