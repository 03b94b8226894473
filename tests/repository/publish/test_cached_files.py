"""Cached files are used only if they are as they were written, and lead nowhere else."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import LINEAR, RELU, TORCH, onnx_file
from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import rendered
from tritonkit.errors import BuildError, PublishError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import check_file
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.optimize.timing import find_timing
from tritonkit.repository.optimize.weights import WeightCache
from tritonkit.repository.publish.publish import publish


@pytest.fixture
def spec(write_model: WriteModel) -> Spec:
    """A network of one layer, as an ONNX file: quickly built."""
    return write_model("name: net\nnetwork: {onnx: relu.onnx}\n", relu__onnx=onnx_file(RELU, ["batch", 4]))


def test_trained_weights_with_a_flipped_bit_are_not_used(write_model: WriteModel, tmp_path: Path) -> None:
    """torch reads such a file without a word: here 1.0 became infinite by its highest exponent bit."""
    spec = write_model(TORCH, network__py=LINEAR)
    folder = tmp_path / "cached"
    folder.mkdir()
    WeightCache(folder, spec).store("network", {"weight": torch.ones(64)})
    [file] = folder.iterdir()
    data = bytearray(file.read_bytes())
    place = data.index(b"\x00\x00\x80\x3f" * 64)
    data[place + 3] ^= 0x40
    file.write_bytes(data)
    assert torch.load(file, weights_only=True)["weight"][0] > 1e38
    assert WeightCache(folder, spec).find("network") is None
    reported: list[str] = []
    again = WeightCache(folder, spec, warn=reported.append)
    assert again.find("network") is None
    assert reported == [f"{file} is damaged and not used: its content is not what its hash says"]
    again.store("network", {"weight": torch.ones(64)})
    weights = WeightCache(folder, spec).find("network")
    assert weights is not None
    assert weights["weight"].tolist() == [1.0] * 64
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("name", ["model.onnx", "artifact.json"])
def test_a_damaged_artifact_is_named_and_made_again(spec: Spec, root: Path, name: str) -> None:
    """A flipped bit in the weights or in the record of how good they are."""
    reported: list[str] = []
    cache = BuildCache(root / "cache")
    cache.warn = reported.append
    first = build(plan(spec, cache), cache)
    assert plan(spec, cache).cached is not None
    assert reported == []
    file = first.folder / name
    before = file.read_bytes()
    if name == "artifact.json":  # a digit of a figure: still JSON
        quality = json.loads(before)["quality"]
        changed = before.replace(str(quality["samples"]).encode(), b"9" * 3)
        assert changed != before
        file.write_bytes(changed)
    else:
        flip(file)
    what = plan(spec, cache)
    assert what.cached is None
    assert str(first.folder) in reported[0]
    assert "is damaged and not used" in reported[0]
    again = build(what, cache)
    assert again.files == first.files
    assert plan(spec, cache).cached == again


def test_a_build_tells_of_damage_on_standard_error(root: Path, tmp_path: Path) -> None:
    """A new artifact is published; --json stays JSON."""
    (tmp_path / "relu.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    tritonkit("new", "relu", "--onnx", str(tmp_path / "relu.onnx"), "--root", str(root))
    assert tritonkit("build", "--root", str(root)).returncode == 0
    [cached] = (root / ".tritonkit" / "cache").rglob("model.onnx")
    flip(cached)
    shutil.rmtree(root / "model_repository")
    done = tritonkit("build", "--json", "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert f"warning: {cached.parent} is damaged and not used: model.onnx" in done.stderr
    assert json.loads(done.stdout)["changes"][0]["action"] == "new version"
    published = root / "model_repository" / "relu" / "1" / "model.onnx"
    assert published.read_bytes() == (tmp_path / "relu.onnx").read_bytes()
    assert tritonkit("verify", "--root", str(root)).returncode == 0


def test_damaged_timings_are_measured_again(spec: Spec, root: Path) -> None:
    """A digit of a time decides which variant is served."""
    cache = BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    from tritonkit.repository.optimize.results import evaluate

    evaluate(spec, ("onnx-fp32",), cache, timed=True)
    assert find_timing(artifact, 1) is not None
    file = artifact.folder / "timing.json"
    file.write_text(file.read_text().replace('"best_batch": ', '"best_batch": 9'))
    assert find_timing(artifact, 1) is None


@pytest.mark.parametrize("name", ["../../../evil.txt", "/evil.txt", "..", "a/b", ""])
def test_an_artifact_names_files_of_its_own_folder_alone(spec: Spec, root: Path, name: str) -> None:
    """A record with a path would make publishing write anywhere; it is not used, even if its hash fits."""
    reported: list[str] = []
    cache = BuildCache(root / "cache")
    cache.warn = reported.append
    artifact = build(plan(spec, cache), cache)
    record = artifact.folder / "artifact.json"
    facts = json.loads(record.read_text())
    facts["files"][name] = hashlib.sha256(b"evil").hexdigest()
    (root / "evil.txt").write_text("evil")
    if facts.pop("sha256", None):
        text = json.dumps(facts, sort_keys=True).encode()
        facts["sha256"] = hashlib.sha256(text).hexdigest()
    record.write_text(json.dumps(facts))
    assert plan(spec, cache).cached is None
    assert f"{name!r} is not a file of the artifact's folder" in reported[0]


def test_a_file_that_changed_since_the_build_is_not_published(tmp_path: Path) -> None:
    """The copy is checked against the hash before it is put in place."""
    model = rendered(tmp_path / "a", b"one")
    publish(tmp_path / "out", [model])
    newer = rendered(tmp_path / "b", b"two")
    (tmp_path / "b" / "model.onnx").write_bytes(b"TWO")
    with pytest.raises(PublishError, match="has changed since it was built"):
        publish(tmp_path / "out", [newer])
    assert [path.name for path in (tmp_path / "out" / "net").glob("[0-9]*")] == ["1"]


def outside(location: str) -> Any:
    """A tensor whose values lie in another file."""
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return tensor


def constant(location: str) -> bytes:
    """A constant among the nodes."""
    add = helper.make_node("Add", ["x", "c"], ["y"])
    return onnx_file([helper.make_node("Constant", [], ["c"], value=outside(location)), add], ["batch", 4])


def branch(location: str) -> bytes:
    """A weight of a graph inside a node."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["o"])],
        "g",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, ["batch", 4])],
        initializer=[outside(location)],
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [1])
    nodes = [
        helper.make_node("Constant", [], ["t"], value=true),
        helper.make_node("If", ["t"], ["y"], then_branch=graph, else_branch=graph),
    ]
    return onnx_file(nodes, ["batch", 4])


def function(location: str) -> bytes:
    """A constant of a function that the file brings along."""
    model = onnx.load_model_from_string(onnx_file([helper.make_node("F", ["x"], ["y"], domain="d")], ["batch", 4]))
    body = [
        helper.make_node("Constant", [], ["c"], value=outside(location)),
        helper.make_node("Add", ["a", "c"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("d", "F", ["a"], ["b"], body, opsets))
    model.opset_import.append(helper.make_opsetid("d", 1))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("make", [constant, branch, function])
@pytest.mark.parametrize("location", ["data.bin", "../data.bin", "/etc/hostname"])
def test_no_tensor_of_an_onnx_file_lies_outside_of_its_folder(
    make: Callable[[str], bytes], location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are not looked for in the folder a person stands in, nor above the file's own."""
    (tmp_path / "data.bin").write_bytes(bytes(16))
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "inner" / "model.onnx"
    file.write_bytes(make(location))
    with pytest.raises(BuildError, match="keeps weights in"):
        check_file(file, "--onnx")
    (tmp_path / "models").mkdir()
    (tmp_path / "python_backends").mkdir()
    done = tritonkit("new", "net", "--onnx", str(file), "--root", str(tmp_path))
    assert "keeps weights in" in failed(done, 3)
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize("link", ["file", "folder"])
def test_the_code_of_a_folders_own_step_is_no_link_out_of_it(
    write_model: WriteModel, root: Path, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    """A stranger's folder could have a private file of this machine published as a step's code."""
    secret = tmp_path_factory.mktemp("private") / "steps"
    (secret / "own").mkdir(parents=True)
    (secret / "own" / "notes.py").write_text("secret")
    (secret / "own" / "step.yaml").write_text(
        "description: d\ninputs: {x: {dtype: FP32, shape: [4]}}\noutputs: {x: {dtype: FP32, shape: [4]}}\n"
    )
    steps = root / "models" / "net" / "steps"
    steps.parent.mkdir()
    if link == "folder":
        steps.symlink_to(secret)
    else:
        (steps / "own").mkdir(parents=True)
        shutil.copy(secret / "own" / "step.yaml", steps / "own")
        (steps / "own" / "own_core.py").symlink_to(secret / "own" / "notes.py")
    text = "name: net\nnetwork: {onnx: relu.onnx}\npipeline:\n  - step: own\n  - network\n"
    write_model(text, relu__onnx=onnx_file(RELU, ["batch", 4]))
    reported = failed(tritonkit("build", "--root", str(root)), 3)
    assert "a link that leads out of" in reported
    assert not list(root.rglob("model_repository/*/[0-9]*/*.py"))
