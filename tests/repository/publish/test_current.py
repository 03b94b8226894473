"""A build without a change renders nothing, and finds everything that did change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tests.conftest import PROJECT, WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import PublishError
from tritonkit.repository import render
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish import verify

SPEC = """name: net
network: {onnx: relu.onnx}
pipeline:
  - step: halve
    serving: {independent_items: true}
  - network
  - step: top_k
    inputs: {logits: y}
    parameters: {k: 2, labels: {package: named, file: labels.txt}}
serving: {max_batch_size: 8}
"""
STEP = """description: Halves all values
inputs: {value: {dtype: FP32, shape: [4]}}
outputs: {x: {dtype: FP32, shape: [4]}}
"""
HALVE = """import triton_python_backend_utils as utils


class TritonPythonModel:
    def execute(self, requests):
        return [utils.InferenceRequest(model_name="other").exec() for _ in requests]
"""


@pytest.fixture
def project(root: Path, write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published project, with a step of its own and labels in a package."""
    (root / "python_backends").unlink()  # a link to the shipped steps
    (root / "python_backends" / "steps" / "halve").mkdir(parents=True)
    (root / "python_backends" / "steps" / "halve" / "step.yaml").write_text(STEP)
    (root / "python_backends" / "steps" / "halve" / "model.py").write_text(HALVE)
    package = tmp_path / "packages" / "named"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "labels.txt").write_text("a\nb\nc\nd\n")
    monkeypatch.syspath_prepend(str(package.parent))
    write_model(SPEC, relu__onnx=onnx_file(RELU, ["batch", 4]))
    assert actions(root) == dict.fromkeys(MODELS, "new version")
    return root


MODELS = ("net_halve", "net_network", "net_top_k", "net")


def actions(root: Path) -> dict[str, str]:
    """The actions of a build, by model."""
    return {change.model: change.action for change in build_repository(root).changes}


def rendering(root: Path) -> tuple[dict[str, str], bool]:
    """The same, and whether the build entered the room that renders."""
    room, entered = str(Path(render.__file__).parent), set()

    def enter(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(enter)
    try:
        done = actions(root)
    finally:
        sys.setprofile(None)
    return done, any(file.startswith(room) for file in entered)


def test_a_build_without_a_change_renders_and_writes_nothing(project: Path) -> None:
    """It reports every model as unchanged, with the notes of the first build, and touches no file."""
    out = project / "model_repository"
    notes = build_repository(project, force=True).notes
    assert any("its Python calls other" in note for note in notes)
    before = {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]}
    assert rendering(project) == (dict.fromkeys(MODELS, "unchanged"), False)
    assert build_repository(project).notes == notes
    assert {path: path.stat().st_mtime_ns for path in [out, *out.rglob("*")]} == before


def edit(out: Path) -> None:
    """Change a value of a configuration, and leave its header."""
    file = out / "net_network" / "config.pbtxt"
    file.write_text(file.read_text().replace("max_batch_size: 8", "max_batch_size: 4"))


def remove_version(out: Path) -> None:
    """Remove a model's only version."""
    shutil.rmtree(out / "net_top_k" / "1")


def remove_model(out: Path) -> None:
    """Remove a model."""
    shutil.rmtree(out / "net")


def change_step(out: Path) -> None:
    """Edit the published code of a step."""
    (out / "net_halve" / "1" / "model.py").write_text(HALVE + "#\n")


def change_manifest(out: Path) -> None:
    """Give a version a manifest that names other files."""
    file = out / "net_network" / "1" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"files": {}}))


def add_configuration(out: Path) -> None:
    """Add a configuration that Triton would prefer."""
    (out / "net_network" / "configs").mkdir(exist_ok=True)
    (out / "net_network" / "configs" / "cores-7.pbtxt").write_text("")


@pytest.mark.parametrize(
    ("damage", "model", "action"),
    [
        (edit, "net_network", "new configuration"),
        (remove_version, "net_top_k", "new version"),
        (remove_model, "net", "new version"),
        (change_step, "net_halve", "new version"),
        (change_manifest, "net_network", "new version"),
        (add_configuration, "net_network", "new configuration"),
    ],
)
def test_a_repository_changed_by_hand_is_repaired(
    project: Path, damage: Callable[[Path], None], model: str, action: str
) -> None:
    """The model is published again, the others stay, and the next build has nothing to do."""
    out = project / "model_repository"
    damage(out)
    assert actions(project) == dict.fromkeys(MODELS, "unchanged") | {model: action}
    assert verify(out) == []
    assert rendering(project) == (dict.fromkeys(MODELS, "unchanged"), False)


def test_compiled_python_and_models_that_no_plan_has_are_removed(project: Path) -> None:
    """Neither is a change of a published file."""
    out = project / "model_repository"
    compiled = out / "net_halve" / "1" / "__pycache__" / "model.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    shutil.copytree(out / "net_halve", out / "net_old")
    assert actions(project) == dict.fromkeys(MODELS, "unchanged") | {"net_old": "removed"}
    assert not compiled.parent.exists() or not list(compiled.parent.iterdir())
    assert not (out / "net_old").exists()


def test_a_foreign_configuration_is_refused(project: Path) -> None:
    """A config.pbtxt without the header was written by somebody else."""
    (project / "model_repository" / "net" / "config.pbtxt").write_text('name: "net"\n')
    with pytest.raises(PublishError, match="tritonkit did not write it"):
        build_repository(project)


def test_a_version_that_the_policy_names_is_missed(project: Path, write_model: WriteModel) -> None:
    """It is not the newest, whose files are all that most specs depend on."""
    text = SPEC.replace("max_batch_size: 8", "max_batch_size: 8, version_policy: {specific: [1]}")
    # The same network in another file: the bytes are an empty doc_string.
    write_model(text, relu__onnx=onnx_file(RELU, ["batch", 4], ["batch", 4]) + b"\x32\x00")
    assert actions(project)["net_network"] == "new version"
    assert set(actions(project).values()) == {"unchanged"}
    shutil.rmtree(project / "model_repository" / "net_network" / "1")
    with pytest.raises(PublishError, match="there is no such version"):
        build_repository(project)


def test_a_changed_spec_is_rendered(project: Path, write_model: WriteModel) -> None:
    """Its network is the same file."""
    write_model(SPEC.replace("max_batch_size: 8", "max_batch_size: 4"))
    assert set(actions(project).values()) == {"new configuration"}


def test_other_cores_are_rendered(project: Path) -> None:
    """Instances and threads follow from the number of cores."""
    changes = build_repository(project, cores=64).changes
    assert {change.action for change in changes} == {"new configuration"}


@pytest.mark.parametrize(
    ("file", "model", "action"),
    [
        ("python_backends/steps/halve/model.py", "net_halve", "new version"),
        ("../packages/named/labels.txt", "net_top_k", "new configuration"),
    ],
)
def test_changed_files_outside_the_models_folder_are_found(
    project: Path, tmp_path: Path, file: str, model: str, action: str
) -> None:
    """A step of the project, and a file of an installed package."""
    source = tmp_path / "packages" / "named" / "labels.txt" if "named" in file else project / file
    source.write_text(source.read_text() + "#\n")
    assert actions(project) == dict.fromkeys(MODELS, "unchanged") | {model: action}


def test_models_of_two_specs_are_told_apart_if_one_is_recognized(project: Path, write_model: WriteModel) -> None:
    """A new spec with the name of a recognized model does not take its place."""
    write_model("name: net_top_k\nnetwork: {onnx: relu.onnx}\n", "net_top_k", relu__onnx=onnx_file(RELU, ["batch", 4]))
    built = build_repository(project, keep_going=True)
    assert sorted(built.failed) == ["net", "net_top_k"]
    assert "models/net_top_k has one" in str(built.failed["net"])
    assert (project / "model_repository" / "net_top_k" / "labels.txt").exists()


def test_a_publish_that_was_killed_is_completed_before_models_are_compared(project: Path) -> None:
    """Staged models with a commit record replace the published ones, which are then no longer those of this build."""
    out = project / "model_repository"
    staging = out.parent / ".model_repository.staging"
    staging.mkdir(mode=0o700)
    shutil.copytree(out / "net", staging / "net")
    config = staging / "net" / "config.pbtxt"
    config.write_text(config.read_text() + "# later\n")
    (staging / "commit.json").write_text(json.dumps({"net": (staging / "net").stat().st_ino}))
    assert actions(project) == dict.fromkeys(MODELS, "unchanged") | {"net": "new configuration"}
    assert "# later" not in (out / "net" / "config.pbtxt").read_text()


@pytest.mark.slow
def test_a_changed_tritonkit_renders_again(project: Path, tmp_path: Path) -> None:
    """A clone is changed as an upgrade would: first a shipped step, then the code that renders."""
    clone = tmp_path / "clone"
    skipped = shutil.ignore_patterns("__pycache__", "native")
    for name in ("src/tritonkit", "python_backends"):
        shutil.copytree(PROJECT / name, clone / name, ignore=skipped if name == "python_backends" else None)

    def build() -> dict[str, str]:
        places = os.pathsep.join([str(clone / "src"), str(tmp_path / "packages")])
        done = subprocess.run(
            [sys.executable, "-m", "tritonkit.cli", "build", "--json", "--root", str(project)],
            env=os.environ | {"PYTHONPATH": places},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return {change["model"]: change["action"] for change in json.loads(done.stdout)["changes"]}

    unchanged = dict.fromkeys(MODELS, "unchanged")
    assert build() == unchanged
    step = clone / "python_backends" / "steps" / "top_k" / "top_k_core.py"
    step.write_text(step.read_text() + "#\n")
    assert build() == unchanged | {"net_top_k": "new version"}
    code = clone / "src" / "tritonkit" / "repository" / "render" / "config.py"
    code.write_text(code.read_text().replace("Do not edit:", "Never edit:"))
    assert build() == dict.fromkeys(MODELS, "new configuration")
    assert build() == unchanged
