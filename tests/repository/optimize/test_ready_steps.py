"""Steps of a project's own that prepare samples in a build: they are run, hashed and finalized as those of a server."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.linear import WEIGHTS, linear, measured, npz
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.ready import step_runner
from tritonkit.repository.export.samples import read_samples
from tritonkit.repository.export.scores import score
from tritonkit.repository.modelspec.contents import python_uses
from tritonkit.repository.optimize import plan
from tritonkit.repository.optimize.fingerprint import tool_versions
from tritonkit.resources import STEPS, shipped

OWN = """
import triton_python_backend_utils as pb_utils
from helper import double


class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            raw = pb_utils.get_input_tensor_by_name(request, "raw").as_numpy()
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("x", double(raw))]))
        return made
"""
FINALIZED = (
    "from pathlib import Path\n"
    + OWN
    + """
    def initialize(self, arguments):
        self.folder = Path(arguments["model_repository"])

    def finalize(self):
        Path("SEEN").write_text(str(self.folder.is_dir()))
"""
)
CONTRACT = """
description: Doubles numbers
inputs: {raw: {dtype: FP32, shape: [4]}}
outputs: {x: {dtype: FP32, shape: [4]}}
"""
WITH_OWN = """
name: net
network: {onnx: m.onnx}
quality: {samples: {npz: a.npz}, metric: accuracy}
pipeline: [{step: doubled}, network]
"""


def own_steps(root: Path) -> Path:
    """A folder of steps for all models of the project, which has none of its own yet."""
    (root / "python_backends").unlink()  # the link to the real folder
    (root / STEPS).mkdir(parents=True)
    return root / STEPS


def own_step(steps: Path, code: str = OWN, helper: str = "def double(x):\n    return 2 * x\n") -> None:
    """A step in a folder of steps, with a module of its own."""
    folder = steps / "doubled"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.yaml").write_text(CONTRACT)
    (folder / "model.py").write_text(code)
    (folder / "helper.py").write_text(helper)


def test_a_step_of_the_folders_own(
    write_model: WriteModel, root: Path, tmp_path: Path, random: np.random.Generator
) -> None:
    """It runs in the build with the modules next to it, leaves no trace, and is listed among what a build runs."""
    own_step(root / "models" / "net" / "steps")
    values = random.normal(size=(8, 4)).astype(np.float32)
    data = npz(raw=values, labels=(values @ WEIGHTS.T).argmax(axis=1))
    before, path = set(sys.modules), list(sys.path)
    spec = write_model(WITH_OWN, m__onnx=linear(WEIGHTS, [4]), a__npz=data)
    assert measured(spec, tmp_path).value == 1.0
    assert not {"model", "helper", "triton_python_backend_utils", "step_support"} & (set(sys.modules) - before)
    assert sys.path == path
    uses = {(use.file, use.when) for use in python_uses(spec)}
    assert ("steps/doubled/model.py", "build") in uses


def test_a_step_is_finalized(write_model: WriteModel, root: Path, tmp_path: Path) -> None:
    """Its model may free what it holds, as on a server, before the folder is removed."""
    own_step(own_steps(root), FINALIZED.replace("SEEN", str(tmp_path / "seen")))
    spec = write_model(WITH_OWN, m__onnx=b"", a__npz=npz(raw=np.ones((1, 4), np.float32)))
    [step, _] = spec.steps
    assert step is not None
    runner = step_runner.StepRunner(step, "here")
    [answer] = runner.run([{"raw": np.ones(4, np.float32)}])
    assert isinstance(answer, dict)
    assert answer["x"].tolist() == [2, 2, 2, 2]
    assert not (tmp_path / "seen").exists()
    del runner
    gc.collect()
    assert (tmp_path / "seen").read_text() == "True"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_package\n" + OWN, "step doubled imports no_such_package, which is not installed here"),
        (OWN.replace("made = []", "made = 1 / 0"), "running it failed: ZeroDivisionError"),
        (OWN.replace("return made", "return made[1:]"), "it gives no response for each request"),
        (OWN.replace("TritonPythonModel", "Model"), "opening it failed: AttributeError"),
        (
            OWN.replace('[pb_utils.Tensor("x", double(raw))]', "error=pb_utils.TritonError('too dark')"),
            "a.npz, row 0: too dark",
        ),
    ],
)
def test_a_step_that_does_not_run_in_a_build(
    write_model: WriteModel, root: Path, tmp_path: Path, code: str, message: str
) -> None:
    """The error says so, and that samples may also be the network's own input."""
    own_step(root / "models" / "net" / "steps", code)
    spec = write_model(WITH_OWN, m__onnx=linear(WEIGHTS, [4]), a__npz=npz(raw=np.ones((3, 4), np.float32)))
    utilities = sys.modules.get("triton_python_backend_utils")  # other tests of this process may have some
    with pytest.raises(BuildError, match=r"quality\.samples") as caught:
        measured(spec, tmp_path)
    assert message in caught.value.found
    assert sys.modules.get("triton_python_backend_utils") is utilities


def test_the_networks_own_input_needs_no_step(
    write_model: WriteModel, root: Path, tmp_path: Path, random: np.random.Generator
) -> None:
    """Arrays under the names of the network's inputs go past the steps before it."""
    own_step(root / "models" / "net" / "steps", "import no_such_package\n")
    values = random.normal(size=(8, 4)).astype(np.float32)
    data = npz(x=values, labels=(values @ WEIGHTS.T).argmax(axis=1))
    assert measured(write_model(WITH_OWN, m__onnx=linear(WEIGHTS, [4]), a__npz=data), tmp_path).value == 1.0


def test_the_code_of_steps_is_part_of_the_hash(
    write_model: WriteModel, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules next to a step's folder and those of shipped steps, which it may import, decide what is measured."""
    steps = own_steps(root)
    own_step(steps)
    shipped_copy = tmp_path / "shipped"
    shutil.copytree(shipped(STEPS), shipped_copy)
    monkeypatch.setattr(step_runner, "shipped", lambda name: shipped_copy if name == STEPS else shipped(name))
    spec = write_model(WITH_OWN, m__onnx=linear(WEIGHTS, [4]), a__npz=npz(raw=np.ones((3, 4), np.float32)))
    cache = BuildCache(tmp_path / "cache")
    hashes = [plan(spec, cache).source_hash]
    for file in (
        steps / "shared.py",
        shipped_copy / "step_scores.py",
        shipped_copy / "tokenize" / "tokenize_core.py",
    ):
        with file.open("a") as stream:
            stream.write("# a change\n")
        hashes.append(plan(spec, cache).source_hash)
    assert len(set(hashes)) == len(hashes)


def test_the_libraries_of_shipped_steps_are_part_of_the_hash(write_model: WriteModel) -> None:
    """Another version of Pillow or of tokenizers prepares other input."""
    versions = tool_versions(write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=b""))
    assert {"pillow", "tokenizers"} <= set(versions)


AFTER = """
description: Counts its starts
inputs: {y: {dtype: FP32, shape: [3]}}
outputs: {z: {dtype: FP32, shape: [3]}}
"""
COUNTED = """
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, arguments):
        with Path("SEEN").open("a") as stream:
            stream.write("opened\\n")

    def execute(self, requests):
        made = []
        for request in requests:
            y = pb_utils.get_input_tensor_by_name(request, "y").as_numpy()
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("z", y + 1)]))
        return made
"""


def test_a_step_is_opened_once_for_all_metrics_and_variants(
    write_model: WriteModel, root: Path, tmp_path: Path
) -> None:
    """A tokenizer or a decoder may take seconds to open."""
    folder = root / "models" / "net" / "steps" / "counted"
    folder.mkdir(parents=True)
    (folder / "step.yaml").write_text(AFTER)
    (folder / "model.py").write_text(COUNTED.replace("SEEN", str(tmp_path / "seen")))
    text = """
name: net
network: {onnx: m.onnx}
quality: {samples: {npz: a.npz}, metric: cosine, also: [rmse]}
pipeline: [network, {step: counted}]
"""
    spec = write_model(text, m__onnx=b"", a__npz=npz(x=np.ones((2, 4), np.float32)))
    signature = Signature((TensorInfo("x", "FP32", (4,)),), (TensorInfo("y", "FP32", (3,)),), batched=True)
    samples = read_samples(spec, signature)
    reference = [{"y": np.ones((2, 3), np.float32)}]
    for change in (1, 2):
        outputs = [{"y": np.full((2, 3), 1 + change, np.float32)}]
        values = {
            metric: score(spec, metric, field, outputs, reference, True, samples).value
            for field, metric in spec.model.quality.metrics.items()
        }
        assert values == {"cosine": pytest.approx(1), "rmse": change}
    assert (tmp_path / "seen").read_text() == "opened\n"
