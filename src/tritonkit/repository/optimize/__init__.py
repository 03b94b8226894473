"""From an `Artifact` to variants: each is measured by the engine that serves it, and must pass the quality gate."""

from tritonkit.repository.optimize.make import BuildPlan, build, plan
from tritonkit.repository.optimize.results import Result, evaluate
from tritonkit.repository.optimize.variants import FORMS, variant_names

__all__ = ["FORMS", "BuildPlan", "Result", "build", "evaluate", "plan", "variant_names"]
