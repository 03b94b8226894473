"""Builds of pipelines of several networks: their order, what is built again, and what is removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import onnx_file
from tests.repository.render.test_graph import FILES
from tritonkit.errors import TritonkitError
from tritonkit.repository.pipeline import build_repository, check_repository

ENCODER = "name: encoder\nnetwork: {onnx: probe.onnx}\n"
PAGE = """name: page
pipeline:
  - {model: encoder, outputs: {y: z}}
  - {name: one, network: {onnx: probe.onnx}, inputs: {x: z}, outputs: {y: left}}
  - {name: sum, network: {onnx: sum.onnx}, inputs: {a: left, b: z}}
"""
MODELS = ["encoder", "page_one", "page_sum", "page"]


@pytest.fixture
def project(root: Path, write_model: WriteModel) -> WriteModel:
    """A project with a shared encoder and a pipeline that has it."""
    write_model(ENCODER, "encoder", **FILES)
    write_model(PAGE, "page", **FILES)
    return write_model


def actions(root: Path, *names: str) -> dict[str, str]:
    """The action of a build for each Triton model."""
    return {change.model: change.action for change in build_repository(root, names, cores=2).changes}


def test_a_pipeline_is_built_with_what_it_needs(root: Path, project: WriteModel) -> None:
    """Its name is enough, and each model comes before the ensemble that has it; a second build recognizes all."""
    assert actions(root, "page") == dict.fromkeys(MODELS, "new version")
    assert actions(root, "page") == dict.fromkeys(MODELS, "unchanged")
    header = (root / "model_repository" / "page_one" / "config.pbtxt").read_text().partition("\n")[0]
    assert "from models/page/model.yaml page_one (target cpu, cores 2)" in header
    assert check_repository(root, cores=2) == {}


def test_a_dry_run_writes_nothing(root: Path, project: WriteModel) -> None:
    """Before the first build it shows the networks that would be built; after it, the ensembles too."""
    shown = build_repository(root, cores=2, dry_run=True)
    assert [result.model for result in shown.results] == ["encoder", "page_one", "page_sum"]
    assert not (root / ".tritonkit" / "cache" / "page").exists()
    actions(root)
    project(PAGE + "serving: {max_batch_size: 2}\n", "page")
    changes = {change.model: change.action for change in build_repository(root, cores=2, dry_run=True).changes}
    assert changes == dict.fromkeys(MODELS[:-1], "unchanged") | {"page": "new configuration"}


def test_a_change_of_a_part_reaches_the_ensemble(root: Path, project: WriteModel) -> None:
    """Built alone, the shared model says which pipelines have it; they follow with their next build."""
    actions(root)
    project(ENCODER + "serving: {max_batch_size: 8}\n", "encoder")
    built = build_repository(root, ["encoder"], cores=2)
    assert {change.model for change in built.changes} == {"encoder"}
    assert [note for note in built.notes if "pipeline" in note] == [
        "page has encoder in its pipeline, which changed: `tritonkit build page` compares them again"
    ]
    changed = actions(root, "page")
    assert changed == {"encoder": "unchanged", "page_one": "unchanged", "page_sum": "unchanged"} | {
        "page": "new configuration"
    }
    assert "max_batch_size: 8" in (root / "model_repository" / "page" / "config.pbtxt").read_text()


def test_a_part_that_fails_keeps_its_pipeline_from_being_built(root: Path, project: WriteModel) -> None:
    """The other models are published; the pipeline's published models stay."""
    actions(root)
    project(ENCODER.replace("probe", "wide"), "encoder")
    built = build_repository(root, cores=2, keep_going=True)
    assert built.failed.keys() == {"page"}
    assert "pipeline.one: tensor z: encoder gives y FP32 [8]; page_one takes x FP32 [4]" in str(built.failed["page"])
    project("name: encoder\nnetwork: {onnx: broken.onnx}\n", "encoder", broken__onnx=b"no network")
    built = build_repository(root, cores=2, keep_going=True)
    assert built.failed.keys() == {"encoder", "page"}
    assert "encoder could not be built" in str(built.failed["page"])
    with pytest.raises(TritonkitError):
        build_repository(root, ["page"], cores=2)
    assert {path.name for path in (root / "model_repository").iterdir()} == set(MODELS)


def test_a_pipeline_that_fails_keeps_its_networks(root: Path, project: WriteModel) -> None:
    """The published ensemble goes on with the networks that it was made for."""
    actions(root)
    before = (root / "model_repository" / "page_one" / "config.pbtxt").read_text()
    project(PAGE.replace("probe", "wide"), "page")
    built = build_repository(root, cores=2, keep_going=True)
    assert built.failed.keys() == {"page"}
    assert built.served == {"encoder": "onnx-fp32"}
    assert {change.model: change.action for change in built.changes} == {"encoder": "unchanged"}
    assert (root / "model_repository" / "page_one" / "config.pbtxt").read_text() == before
    assert {path.name for path in (root / "model_repository").iterdir()} == set(MODELS)


def test_models_of_a_network_that_is_gone_are_removed(root: Path, project: WriteModel) -> None:
    """Whether all is built or the pipeline alone; those of the shared model stay."""
    actions(root)
    project(PAGE.replace("name: one,", "name: first,"), "page")
    assert actions(root, "page") == {
        "encoder": "unchanged",
        "page_first": "new version",
        "page_sum": "unchanged",
        "page": "new configuration",
        "page_one": "removed",
    }
    (root / "models" / "page" / "model.yaml").unlink()
    assert actions(root) == {"encoder": "unchanged"} | dict.fromkeys(("page", "page_first", "page_sum"), "removed")


def test_a_network_of_a_pipeline_is_built_alone(root: Path, project: WriteModel) -> None:
    """And nothing of its pipeline is touched."""
    actions(root)
    assert actions(root, "page_one") == {"page_one": "unchanged"}
    assert (root / "model_repository" / "page").is_dir()


def test_a_network_whose_items_depend_on_each_other_gets_one_at_a_time(root: Path, write_model: WriteModel) -> None:
    """Its tensors keep the shape of an item, as in a pipeline with one network."""
    nodes = [helper.make_node("ReduceMean", ["x", "axis"], ["mean"]), helper.make_node("Sub", ["x", "mean"], ["y"])]
    axis = helper.make_node("Constant", [], ["axis"], value_ints=[0])
    text = "name: page\npipeline: [{name: center, network: {onnx: center.onnx}}]\n"
    write_model(text, "page", center__onnx=onnx_file([axis, *nodes], ["batch", 4]))
    build_repository(root, cores=2)
    for name in ("page_center", "page"):
        config = (root / "model_repository" / name / "config.pbtxt").read_text()
        assert "max_batch_size: 0\n" in config
        assert 'name: "x" data_type: TYPE_FP32 dims: [4]' in config


def test_an_error_of_a_network_names_its_entry(root: Path, project: WriteModel) -> None:
    """The gate, too, speaks of the place in the pipeline."""
    text = PAGE.replace("{name: sum,", "{name: sum, serving: {max_batch_size: 0},")
    project(text, "page")
    with pytest.raises(TritonkitError) as caught:
        build_repository(root, ["page"], cores=2)
    assert "models/page/model.yaml pipeline" in caught.value.where
