"""Render a `Spec` and its `Artifact` as the text of every Triton model that they make."""

from tritonkit.repository.render.batching import DEFAULT_MAX_BATCH_SIZE
from tritonkit.repository.render.config import render_config
from tritonkit.repository.render.plan import plan_models
from tritonkit.repository.render.values import EnsembleStep, ModelPlan, Target, TensorPlan

__all__ = [
    "DEFAULT_MAX_BATCH_SIZE",
    "EnsembleStep",
    "ModelPlan",
    "Target",
    "TensorPlan",
    "plan_models",
    "render_config",
]
