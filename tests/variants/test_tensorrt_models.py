"""TensorRT-RTX plans of the shipped models, built ahead of time on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.export import BuildCache
from tritonkit.optimize import evaluate
from tritonkit.optimize.gpu import find_gpu
from tritonkit.optimize.variants.tensorrt_plan import read_plan_profiles
from tritonkit.optimize.variants.tensorrt_profiles import Range
from tritonkit.spec import load

pytestmark = pytest.mark.skipif(
    find_gpu() is not None, reason="beside a GPU plans are built by tensorrt: see bench gpu"
)
PROFILES = {
    "digits": [
        {"pixels": Range((1, 1, 8, 8), (8, 1, 8, 8), (64, 1, 8, 8))},
        {"pixels": Range((1, 1, 8, 8), (32, 1, 8, 8), (64, 1, 8, 8))},
    ],
    "resnet50": [
        {"pixels": Range((1, 3, 224, 224), (4, 3, 224, 224), (16, 3, 224, 224))},
        {"pixels": Range((1, 3, 224, 224), (8, 3, 224, 224), (16, 3, 224, 224))},
    ],
}


@pytest.mark.timeout(900)  # ResNet-50 is exported and measured first
@pytest.mark.parametrize("model", PROFILES)
def test_a_plan_holds_the_profiles_of_the_spec(model: str, project: Path, tmp_path: Path) -> None:
    """The profiles that the builder's configuration held are the spec's."""
    spec = load(project / "models" / model, project)
    (result,) = evaluate(spec, ["tensorrt-fp16"], BuildCache(tmp_path), threads=2)
    assert result.problem is None
    assert result.artifact is not None
    plan = result.artifact.folder / "model.rtxplan"
    assert list(read_plan_profiles(plan)) == PROFILES[model]
    assert plan.stat().st_size > 100_000
