"""TensorRT-RTX plans of the shipped models, built ahead of time on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu import find_gpu


@pytest.fixture(autouse=True)
def without_gpu() -> None:
    """The driver is asked when a test runs, not when it is collected."""
    if find_gpu() is not None:
        pytest.skip("with a GPU, tensorrt builds the plans: see bench gpu")


def profile(item: list[int], opt: int, largest: int) -> dict[str, dict[str, list[int]]]:
    """Of one input, for 1 to `largest` items."""
    return {"pixels": {"min": [1, *item], "opt": [opt, *item], "max": [largest, *item]}}


PROFILES = {
    "digits": [profile([1, 8, 8], 64, 64)],  # no preferred sizes: for the largest
    "resnet50": [profile([3, 224, 224], 4, 16), profile([3, 224, 224], 8, 16)],
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
    record = json.loads((result.artifact.folder / "plan.json").read_text())
    assert record["profiles"] == PROFILES[model]
    assert plan.stat().st_size > 100_000
