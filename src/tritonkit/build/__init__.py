"""From a `Spec` to an `Artifact`: trained or loaded, exported, checked against the reference."""

from tritonkit.build.artifact import Artifact, Measured, Signature, TensorInfo, sha256_file
from tritonkit.build.cache import Cache
from tritonkit.build.hooks import load_hook
from tritonkit.build.make import BuildPlan, build, plan
from tritonkit.build.results import Result, evaluate
from tritonkit.build.variants import FORMS, variant_names

__all__ = [
    "FORMS",
    "Artifact",
    "BuildPlan",
    "Cache",
    "Measured",
    "Result",
    "Signature",
    "TensorInfo",
    "build",
    "evaluate",
    "load_hook",
    "plan",
    "sha256_file",
    "variant_names",
]
