"""Pipelines of several networks: the specs that their entries become, and the words with which others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import SpecError, UsageError
from tritonkit.repository.modelspec import kept_specs, load_all, load_named, load_readable

ONNX = {"a__onnx": b"x", "b__onnx": b"x"}
PAGE = """name: page
triton: '25.01'
pipeline:
  - {name: detector, network: {onnx: a.onnx}, outputs: {y: boxes}, serving: {max_batch_size: 4}}
  - {model: encoder, inputs: {x: boxes}}
  - {name: reader, network: {onnx: b.onnx}, inputs: {x: y}, optimize: {variants: [onnx-int8-dynamic]}}
"""
ENCODER = "name: encoder\nnetwork: {onnx: a.onnx}\n"


@pytest.fixture
def page(write_model: WriteModel) -> WriteModel:
    """A project with the models `encoder` and `page`, whose text may be another."""
    write_model(ENCODER, "encoder", **ONNX)
    return write_model


def refused(page: WriteModel, text: str) -> SpecError:
    """The error of a page that must be refused."""
    with pytest.raises(SpecError) as caught:
        page(text, "page", **ONNX)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_network_in_a_pipeline_is_a_spec_of_its_own(page: WriteModel) -> None:
    """It has its entry's sections, the folder of the whole, and the names of both."""
    spec = page(PAGE, "page", **ONNX)
    detector, encoder, reader = spec.members.values()
    assert [one.name for one in spec.tree] == ["page_detector", "encoder", "page_reader", "page"]
    assert detector.folder == reader.folder == spec.folder
    assert detector.network_name == "page_detector"
    assert detector.model.serving.max_batch_size == 4
    assert detector.model.triton == "25.01"
    assert reader.model.optimize.variants == ("onnx-int8-dynamic",)
    assert encoder.folder.name == "encoder"
    assert not spec.model.has_network


def test_specs_come_after_those_that_they_need(root: Path, page: WriteModel) -> None:
    """They are found by all names, by one, and by that of an entry; a spec that two pipelines have comes once."""
    page(PAGE, "page", **ONNX)
    page(PAGE.replace("page", "all_pages"), "all_pages", **ONNX)
    names = [spec.name for spec in load_all(root)]
    assert names == [
        "all_pages_detector",
        "encoder",
        "all_pages_reader",
        "all_pages",
        "page_detector",
        "page_reader",
        "page",
    ]
    assert [spec.name for spec in load_all(root, ("page_reader",))] == ["page_reader"]
    assert load_named(root, "page").name == "page"
    assert load_named(root, "all_pages_detector").entry == "pipeline.detector"
    with pytest.raises(UsageError, match="page_raeder"):
        load_named(root, "page_raeder")


def test_a_spec_is_read_once_for_all_pipelines_that_have_it(root: Path, page: WriteModel) -> None:
    """Also where one of them has it twice: pipelines of pipelines would double the work with each level."""
    page(PAGE, "page", **ONNX)
    page("name: pair\npipeline: [{model: encoder, outputs: {y: x}}, {model: encoder, name: more}]\n", "pair", **ONNX)
    specs = {spec.name: spec for spec in load_readable(root)[0]}
    encoder = specs["encoder"]
    assert specs["page"].members["encoder"] is encoder
    assert all(member is encoder for member in specs["pair"].members.values())


def test_a_network_of_another_pipeline_can_be_shared(page: WriteModel) -> None:
    """It is called by its whole name, and built with its own spec's sections."""
    page(PAGE, "page", **ONNX)
    spec = page("name: other\npipeline: [{model: page_detector}]\n", "other", **ONNX)
    assert [one.name for one in spec.tree] == ["page_detector", "other"]
    assert spec.members["page_detector"].entry == "pipeline.detector"


def test_models_of_specs_that_are_not_built_stay(root: Path, page: WriteModel) -> None:
    """A spec's own networks are built with it, or not at all; another's are built with those that need them."""
    page(PAGE + "default: false\n", "page", **ONNX)
    specs, failed = load_readable(root)
    assert [spec.name for spec in specs] == ["encoder"]
    assert kept_specs(root, specs) == {"page"}
    assert not failed


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (PAGE.replace("encoder", "encdoer"), "page/model.yaml pipeline.encdoer", "unknown model 'encdoer'"),
        (PAGE.replace("b.onnx", "c.onnx"), "page/model.yaml pipeline.reader.network.onnx", "no file 'c.onnx'"),
        (PAGE.replace("model: encoder", "model: page"), "page/model.yaml pipeline.page", "a cycle: page -> page"),
        (PAGE.replace("model: encoder", "model: page_reader"), "pipeline.page_reader", "a cycle: page -> page_reader"),
        (PAGE.replace("name: reader", "name: detector"), "", "two parts called 'detector'"),
        (PAGE.replace("name: reader", "name: network"), "", "two parts called 'network'"),
        (PAGE.replace("inputs: {x: boxes}", "input: {x: boxes}"), ":5 pipeline.1.input", "unknown key 'input'"),
        (PAGE.replace("variants:", "varaints:"), ":6 pipeline.2.optimize.varaints", "unknown key 'varaints'"),
        (PAGE + "network: {onnx: a.onnx}\n", "", "network is given, and pipeline has no `network`"),
        (PAGE + "serving: {threads: 2}\n", "", "serving.threads is given, and pipeline has no `network`"),
        (PAGE + "quality: {at_least: 0.9}\n", "", "quality is given, and pipeline has no `network`"),
        (PAGE.replace("pipeline:", "pipeline:\n  - network"), "", "network is missing"),
        (PAGE.replace("{onnx: b.onnx}", "{llm: {checkpoint: c}}"), "", "takes and gives text"),
        ("name: page\npipeline: [netwrok]\n", ":2 pipeline.0", "found 'netwrok'"),
        (
            "name: page\npipeline: [{step: top_k, network: {onnx: a.onnx}}]\n",
            ":2 pipeline.0",
            "step and network",
        ),
        ("name: page\npipeline: [{network: {onnx: a.onnx}}]\n", ":2 pipeline.0", "the key 'name' is missing"),
        ("name: page\npipeline: [{step: top_k}]\n", "", "`network` exactly once"),
        ("name: page\nnetwork: {onnx: a.onnx}\npipeline: [network, network]\n", "", "has `network` twice"),
        (f"name: page\npipeline: [{{name: {'n' * 125}, network: {{onnx: a.onnx}}}}]\n", "pipeline.nnn", "128"),
    ],
)
def test_pipelines_that_do_not_fit_are_refused(page: WriteModel, text: str, where: str, message: str) -> None:
    """Each error names the entry."""
    error = refused(page, text)
    assert message in str(error)
    assert where in error.where


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("page_raeder", "'page_reader'"),
        ("page_x", "'page'"),
        ("zzz", "one of encoder, page, page_detector, page_reader"),
    ],
)
def test_an_unknown_name_is_answered_with_those_of_networks(
    page: WriteModel, root: Path, name: str, nearest: str
) -> None:
    """A network in a pipeline is called by the pipeline's name and its own."""
    page(PAGE, "page", **ONNX)
    with pytest.raises(UsageError, match=f"model '{name}': there is no models/{name}/model.yaml") as caught:
        load_named(root, name)
    assert nearest in caught.value.wanted


def test_a_cycle_over_several_specs_is_refused(page: WriteModel, root: Path) -> None:
    """The error has the whole circle."""
    page(PAGE, "page", **ONNX)
    (root / "models" / "encoder" / "model.yaml").write_text("name: encoder\npipeline: [{model: page}]\n")
    with pytest.raises(SpecError, match="a cycle: encoder -> page -> encoder"):
        load_named(root, "encoder")
    _, failed = load_readable(root)
    assert failed.keys() == {"encoder", "page"}


def test_a_name_belongs_to_one_spec(page: WriteModel, root: Path) -> None:
    """A network in a pipeline may not have the name of a folder, nor that of another pipeline's network."""
    page("name: page_reader\nnetwork: {onnx: a.onnx}\n", "page_reader", **ONNX)
    assert "the name page_reader" in refused(page, PAGE).found
    page(PAGE.replace("name: reader", "name: x_y"), "page", **ONNX)
    page("name: page_x\npipeline: [{name: y, network: {onnx: a.onnx}}]\n", "page_x", **ONNX)
    _, failed = load_readable(root)
    assert "'page_x_y'" in failed["page_x"].found


def test_an_error_in_a_networks_settings_names_its_entry(page: WriteModel) -> None:
    """Also where the setting is a target's own."""
    text = PAGE.replace("max_batch_size: 4", "targets: {gpu: {max_batch_size: 4}}")
    detector = page(text, "page", **ONNX).members["detector"]
    with pytest.raises(SpecError) as caught, detector.places_in_errors():
        raise SpecError(f"{detector.file} serving.max_batch_size", found="4")
    assert caught.value.where.endswith("model.yaml pipeline.detector.serving.max_batch_size")


def test_an_unknown_key_is_answered_with_those_of_its_kind_of_entry(page: WriteModel) -> None:
    """A network's keys for a network, each once, and no step's."""
    error = refused(page, PAGE.replace("name: detector,", "name: detector, parameters: {},"))
    assert error.found == "unknown key 'parameters'"
    assert error.wanted == "one of example, inputs, name, network, optimize, outputs, python, quality, serving"


def test_a_missing_key_is_named(page: WriteModel) -> None:
    """An entry without a name."""
    error = refused(page, PAGE.replace("name: detector,", ""))
    assert "pipeline.0" in error.where
    assert error.found == "the key 'name' is missing"
