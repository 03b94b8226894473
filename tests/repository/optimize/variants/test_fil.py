"""The variant `fil`: what is published for NVIDIA's image, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.repository.trees import models
from tritonkit.errors import BuildError, RenderError, SpecError, TritonkitError
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.runtimes.treelite_cpu import open_runner
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.message import parse_text
from tritonkit.repository.scaffold import new_from_tree

pytestmark = pytest.mark.needs("trees")
NETWORK = """name: "net_network"
backend: "fil"
max_batch_size: 64
input { name: "input__0" data_type: TYPE_FP32 dims: [5] }
output { name: "output__0" data_type: TYPE_FP32 dims: [%d] }
version_policy { latest { num_versions: 1 } }
instance_group { count: 1 kind: KIND_GPU }
dynamic_batching { max_queue_delay_microseconds: 0 }
model_warmup {
  name: "batch-1"
  batch_size: 1
  inputs { key: "input__0" value { data_type: TYPE_FP32 dims: [5] zero_data: true } }
}
model_warmup {
  name: "batch-64"
  batch_size: 64
  inputs { key: "input__0" value { data_type: TYPE_FP32 dims: [5] zero_data: true } }
}
%sparameters { key: "tritonkit.independent_items" value { string_value: "proven" } }
"""
CALLED = """name: "net"
platform: "ensemble"
max_batch_size: 64
input { name: "features" data_type: TYPE_FP32 dims: [5] }
output { name: "prediction" data_type: TYPE_FP32 dims: [%d] }
version_policy { latest { num_versions: 1 } }
ensemble_scheduling {
  step {
    model_name: "net_network"
    model_version: -1
    input_map { key: "input__0" value: "features" }
    output_map { key: "output__0" value: "prediction" }
  }
}
parameters { key: "tritonkit.independent_items" value { string_value: "proven" } }
"""
ONE = {"is_classifier": "false", "model_type": "treelite_checkpoint", "output_class": "false", "predict_proba": "false"}
CLASSES = ONE | dict.fromkeys(("is_classifier", "output_class", "predict_proba"), "true") | {"threshold": "0.5"}


def text_of(folder: Path) -> str:
    """A published configuration without its header."""
    return (folder / "config.pbtxt").read_text().partition("\n")[2]


def change(root: Path, **settings: Any) -> None:
    """Settings of the model for NVIDIA's image."""
    file = root / "models" / "net" / "model.yaml"
    model = yaml.safe_load(file.read_text())
    model["serving"]["targets"]["nvidia"] |= settings
    file.write_text(yaml.safe_dump(model))


def failure(root: Path, target: str = "nvidia") -> TritonkitError:
    """The error of a build."""
    return build_repository(root, target=target, cores=2, keep_going=True).failed["net"]


@pytest.mark.parametrize(
    ("objective", "outputs", "parameters"), [("binary:logistic", 1, ONE), ("multi:softprob", 3, CLASSES)]
)
def test_what_is_published(
    root: Path, tmp_path: Path, objective: str, outputs: int, parameters: dict[str, str]
) -> None:
    """A checkpoint with the backend's names, behind an ensemble with those of the ONNX file, and XGBoost's answers."""
    import xgboost

    booster = models.xgboost_file(tmp_path / "model.json", objective=objective)
    new_from_tree(root, "net", tmp_path / "model.json")
    out = build_repository(root, target="nvidia", cores=2).path
    written = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in sorted(parameters.items())
    )
    assert text_of(out / "net_network") == NETWORK % (outputs, written)
    assert text_of(out / "net") == CALLED % outputs
    parse_text(text_of(out / "net_network"), "config.pbtxt")
    rows = models.table().astype(np.float32)
    data = xgboost.DMatrix(rows, feature_types=booster.feature_types, enable_categorical=True)
    answers = open_runner(out / "net_network" / "1", 1, "test").run({"features": rows})
    np.testing.assert_allclose(answers["prediction"], booster.predict(data).reshape(len(rows), -1), atol=1e-6)


def test_other_targets_serve_the_onnx_file(root: Path, tmp_path: Path) -> None:
    """tritonkit's own servers have no FIL; a look at the model says so before a build."""
    models.xgboost_file(tmp_path / "model.json")
    folder = new_from_tree(root, "net", tmp_path / "model.json")
    out = build_repository(root, cores=2).path
    assert [path.name for path in (out / "net" / "1").iterdir() if path.suffix != ".json"] == ["model.onnx"]
    file = folder / "model.yaml"
    file.write_text(file.read_text().replace("nvidia:", "gpu:"))
    with pytest.raises(SpecError, match="--target gpu cannot serve") as caught:
        raise failure(root, "gpu")
    assert "--target nvidia" in caught.value.todo


def test_trees_in_a_pipeline(root: Path, tmp_path: Path) -> None:
    """The step for named columns gives FIL its input."""
    import pandas as pd
    import xgboost

    table = pd.DataFrame(models.table()[:, :3], columns=["age", "height", "weight"])
    model = xgboost.XGBRegressor(n_estimators=3, n_jobs=1).fit(table, models.target(models.table()))
    model.save_model(tmp_path / "model.json")
    new_from_tree(root, "net", tmp_path / "model.json")
    out = build_repository(root, target="nvidia", cores=2).path
    assert 'input_map { key: "input__0" value: "features" }' in text_of(out / "net")
    assert 'input { name: "record" data_type: TYPE_STRING dims: [1] }' in text_of(out / "net")


def test_lightgbm_in_float32(root: Path, tmp_path: Path) -> None:
    """FIL takes it with --fp32; without, the CPU serves it, and demanding FIL is refused."""
    models.lightgbm_file(tmp_path / "model.txt")
    said: list[str] = []
    new_from_tree(root, "net", tmp_path / "model.txt", say=said.append)
    assert "serves them on the CPU, not by FIL: columns and thresholds in double" in said[-1]
    change(root, variant="fil")
    with pytest.raises(BuildError, match="in double") as caught:
        raise failure(root)
    assert "--fp32" in caught.value.todo
    (root / "models" / "net").rename(root / "kept")
    new_from_tree(root, "net", tmp_path / "model.txt", fp32=True)
    assert "fil" in text_of(build_repository(root, target="nvidia", cores=2).path / "net_network")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_batch_size": 0}, "0, with the variant fil"),
        ({"parameters": {"output_class": "true"}}, "serving.targets.nvidia.parameters.output_class: true"),
    ],
)
def test_settings_that_fil_cannot_have(root: Path, tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    """A batch axis is the backend's, and the parameters that decide on answers are the build's."""
    models.xgboost_file(tmp_path / "model.json")
    new_from_tree(root, "net", tmp_path / "model.json")
    change(root, **settings)
    with pytest.raises(RenderError, match=words):
        raise failure(root)


def test_parameters_for_speed_are_passed_on(root: Path, tmp_path: Path) -> None:
    """They are the backend's, as is a CPU."""
    models.xgboost_file(tmp_path / "model.json")
    new_from_tree(root, "net", tmp_path / "model.json")
    change(root, parameters={"chunk_size": "8"}, instance_group=[{"kind": "cpu"}])
    text = text_of(build_repository(root, target="nvidia", cores=2).path / "net_network")
    assert 'key: "chunk_size" value { string_value: "8" }' in text
    assert "kind: KIND_CPU" in text


def test_inspect_knows_the_backend(root: Path, tmp_path: Path) -> None:
    """Without a build."""
    models.xgboost_file(tmp_path / "model.json")
    folder = new_from_tree(root, "net", tmp_path / "model.json")
    names = [
        (plan.name, plan.backend) for plan in inspect_model(load(folder, root, target="nvidia"), "nvidia", 2).models
    ]
    assert names == [("net_network", "fil"), ("net", None)]
