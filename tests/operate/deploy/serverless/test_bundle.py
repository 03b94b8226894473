"""Contents of a function's folder, writing it, and models that cannot be a function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.runtime_api import function
from tests.cli.running import failed, tritonkit_here
from tests.conftest import PROJECT, WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import GateError, RenderError, SpecError, UsageError
from tritonkit.operate.deploy.serverless import bundle, chosen_variant, write_bundle
from tritonkit.operate.deploy.serverless.packages import parse_requirement, pins
from tritonkit.repository.modelspec import load
from tritonkit.repository.publish.integrity import verify_folder

FILE = "name: net\nnetwork: {onnx: m.onnx}\n"
STEPS = FILE + "pipeline: [{step: own}, network]\n"
STEP = """
description: Doubles
inputs: {z: {dtype: FP32, shape: [4]}}
outputs: {x: {dtype: FP32, shape: [4]}}
"""
DOUBLE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("x", 2 * pb_utils.get_input_tensor_by_name(r, "z").as_numpy())]
            )
            for r in requests
        ]
"""


@pytest.fixture
def relu(root: Path, write_model: WriteModel) -> Path:
    """A project with one network of its own."""
    write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4]))
    return root


def with_step(root: Path, write_model: WriteModel, code: str, **files: str) -> Path:
    """The same behind a step of its own."""
    folder = root / "models" / "net" / "steps" / "own"
    folder.mkdir(parents=True)
    for name, text in {"step__yaml": STEP, "model__py": code, **files}.items():
        (folder / name.replace("__", ".")).write_text(text)
    write_model(STEPS, m__onnx=onnx_file(RELU, ["batch", 4]))
    return root


def test_a_network_alone_is_a_function(relu: Path, tmp_path: Path) -> None:
    """Without a pipeline, and without packages that only steps import; it answers."""
    made = bundle(relu, "net")
    write_bundle(tmp_path / "out", made)
    assert verify_folder(tmp_path / "out" / "function") == []
    packages = (tmp_path / "out" / "requirements.txt").read_text()
    assert "onnxruntime==" in packages
    assert "pillow" not in packages
    assert "tokenizers" not in packages
    assert "example.json" not in made.files
    x = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [-1, 2, -3, 4, 5, -6, 7, -8.5]}
    with function(tmp_path / "out" / "function") as running:
        [y] = running.invoke({"inputs": [x]}).body["outputs"]
    assert y["data"] == [0, 2, 0, 4, 5, 0, 7, 0]
    assert y["shape"] == [2, 4]


def test_a_step_of_one_s_own_runs_as_in_triton(root: Path, write_model: WriteModel, tmp_path: Path) -> None:
    """The same model.py, with the names that Triton's module has."""
    with_step(root, write_model, DOUBLE)
    write_bundle(tmp_path / "out", bundle(root, "net"))
    z = {"name": "z", "datatype": "FP32", "shape": [1, 4], "data": [[-1, 2, -3, 4]]}
    with function(tmp_path / "out" / "function") as running:
        [y] = running.invoke({"inputs": [z]}).body["outputs"]
    assert y["data"] == [0, 4, 0, 8]


def test_what_a_step_imports_is_installed_or_asked_for(root: Path, write_model: WriteModel) -> None:
    """Pillow is known; of scipy a person says the version."""
    with_step(root, write_model, f"import PIL.Image\nimport scipy.special\n{DOUBLE}")
    with pytest.raises(RenderError, match="imports scipy") as caught:
        bundle(root, "net")
    assert "--require scipy==VERSION" in caught.value.todo
    made = bundle(root, "net", more=[parse_requirement("scipy==1.17.0")])
    text = bytes(made.files["requirements.txt"]).decode()
    assert "scipy==1.17.0" in text
    assert "pillow==" in text


def test_modules_of_one_name_are_one(root: Path, write_model: WriteModel) -> None:
    """The models share a process: a helper called as the backend's is refused, not taken for it."""
    with_step(root, write_model, DOUBLE, backend_batch__py="LIMIT = 1\n")
    with pytest.raises(RenderError, match=r"another file of that name is .*backend_batch\.py"):
        bundle(root, "net")


@pytest.mark.slow
def test_an_int8_function_is_right_on_every_cpu(digits_folder: Path) -> None:
    """`int8` is the spec's first INT8 form, within 7 bits, and passed the gate; the handler is the same."""
    made = bundle(PROJECT, "digits", "int8")
    assert made.variant == "onnx-int8-static"
    weights = "function/models/digits_network/1/model.onnx"
    source = made.files[weights]
    assert isinstance(source, Path)
    artifact = json.loads((source.parent / "artifact.json").read_text())
    assert "=7" in artifact["tools"]["cpu"]
    assert artifact["quality"]["value"] >= 0.975
    other = {path for path in made.files if made.files[path] != bundle(PROJECT, "digits").files[path]}
    assert other == {weights, "function/function.json", "function/manifest.json"}


@pytest.mark.parametrize(
    ("option", "serving", "chosen"),
    [
        (None, "onnx-fp32", "onnx-fp32"),
        (None, "openvino-int8", "onnx-fp32"),
        (None, "auto", "onnx-fp32"),
        (None, "onnx-fp16", "onnx-fp16"),
        ("fp32", "auto", "onnx-fp32"),
        ("int8", "auto", "onnx-int8-dynamic"),
        ("onnx-int8-qat", "auto", "onnx-int8-qat"),
    ],
)
def test_the_variant_is_one_for_onnx_runtime(
    write_model: WriteModel, option: str | None, serving: str, chosen: str
) -> None:
    """The served variant if it can run there, else FP32."""
    spec = write_model(FILE + f"serving: {{variant: {serving}}}\n", m__onnx=onnx_file(RELU, ["batch", 4]))
    assert chosen_variant(spec, option) == chosen


def test_what_needs_triton_is_refused(root: Path, write_model: WriteModel) -> None:
    """Another engine's variant, an unknown one, a model.py as network, sequences."""
    spec = write_model(FILE, m__onnx=onnx_file(RELU, ["batch", 4]))
    with pytest.raises(RenderError, match="ONNX Runtime does not run it"):
        chosen_variant(spec, "openvino-int8")
    with pytest.raises(SpecError, match="unknown variant 'int4'"):
        chosen_variant(spec, "int4")
    sequences = FILE + "serving: {sequence_batching: {max_sequence_idle: 1s}}\n"
    write_model(sequences, m__onnx=onnx_file(RELU, ["batch", 4]))
    with pytest.raises(RenderError, match="its requests belong to sequences"):
        bundle(root, "net")
    python = (
        "name: net\nnetwork: {python: model.py, inputs: {x: {dtype: FP32, shape: [4]}},"
        " outputs: {x: {dtype: FP32, shape: [4]}}}\n"
    )
    with pytest.raises(RenderError, match=r"network\.python"):
        chosen_variant(write_model(python, model__py=DOUBLE), None)


def test_a_network_that_is_not_good_enough_is_no_function(root: Path, write_model: WriteModel) -> None:
    """The gate of a build holds here."""
    quality = "quality: {samples: 'data:samples', metric: 'data:metric', at_least: 0.9}\n"
    data = (
        "import numpy as np\n"
        "def samples():\n    return [{'x': np.ones((2, 4), np.float32)}]\n"
        "def metric(outputs, reference):\n    return 0.5\n"
    )
    write_model(FILE + quality, m__onnx=onnx_file(RELU, ["batch", 4]), data__py=data)
    with pytest.raises(GateError):
        bundle(root, "net")


@pytest.mark.parametrize(
    ("text", "module"),
    [("scipy==1.17.0", "scipy"), ("ruamel-yaml==0.18", "ruamel_yaml"), ("cv2=opencv-python==4.12", "cv2")],
)
def test_a_requirement_names_a_version(text: str, module: str) -> None:
    """A distribution and the module it brings."""
    assert parse_requirement(text).module == module


@pytest.mark.parametrize("text", ["scipy", "scipy>=1", "", "a b==1", "scipy==", "-r x==1 y"])
def test_a_requirement_without_a_version_is_refused(text: str) -> None:
    """Two builds of an image install the same, and nothing is an option of pip."""
    with pytest.raises(UsageError):
        parse_requirement(text)


def test_every_pin_is_one_version() -> None:
    """Each line of the file is a pin, and so is each package that comes with tritonkit."""
    text = (PROJECT / "deploy" / "lambda" / "requirements.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(pins(text)) == len(lines) > 5


def test_the_command_writes_checks_and_repairs(relu: Path, tmp_path: Path) -> None:
    """The project's only model; then nothing to do; a file of another hand is written over only with --force."""
    out = tmp_path / "out"
    words = ("deploy", "--target", "lambda", "--out", str(out), "--root", str(relu))
    done = tritonkit_here(*words)
    assert done.returncode == 0, done.stderr
    assert "docker build" in done.stderr
    assert tritonkit_here(*words, "--check").returncode == 0
    assert "nothing to change" in tritonkit_here(*words).stderr
    (out / "function" / "handler.py").write_text("")
    (out / "function" / "more.py").write_text("")
    (out / "Dockerfile").unlink()
    done = tritonkit_here(*words, "--check")
    for line in ("handler.py: it differs", "Dockerfile: it is missing", "more.py: it is too much"):
        assert line in done.stdout
    assert "not as rendered" in failed(done, 3)
    assert "edited by hand: function/handler.py" in failed(tritonkit_here(*words), 3)
    facts = json.loads(tritonkit_here(*words, "--force", "--json").stdout)
    assert sorted(Path(file).name for file in facts["written"]) == ["Dockerfile", "handler.py"]
    assert facts["variant"] == "onnx-fp32"
    assert not (out / "function" / "more.py").exists()
    assert tritonkit_here(*words, "--check").returncode == 0


def test_somebody_else_s_folder_is_left_alone(relu: Path, tmp_path: Path) -> None:
    """Nothing is written into a folder that holds something else."""
    (tmp_path / "notes.txt").write_text("mine")
    words = ("deploy", "--target", "lambda", "--out", str(tmp_path), "--root", str(relu))
    assert "it holds files" in failed(tritonkit_here(*words), 3)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--target", "lambda", "--model", "nte"), 2, "net"),
        (("--target", "lambda", "--namespace", "a"), 2, "--target kubernetes"),
        (("--target", "lambda", "--repository", "a"), 2, "--target kubernetes"),
        (("--target", "lambda", "--require", "scipy"), 2, "NAME==VERSION"),
        (("--variant", "int8"), 2, "--target lambda"),
        (("--model", "net"), 2, "--target lambda"),
    ],
)
def test_wrong_words_are_refused(relu: Path, words: tuple[str, ...], code: int, message: str) -> None:
    """One message each, with what was wanted."""
    assert message in failed(tritonkit_here("deploy", *words, "--root", str(relu)), code)


def test_of_several_models_one_must_be_named() -> None:
    """A function has one."""
    done = tritonkit_here("deploy", "--target", "lambda", "--root", str(PROJECT))
    assert "one of digits, resnet50, sentences" in failed(done, 2)


def test_the_shipped_example_is_the_spec_s(digits_folder: Path) -> None:
    """An event to try the function with."""
    event = json.loads((digits_folder / "example.json").read_text())
    spec = load(PROJECT / "models" / "digits", PROJECT)
    assert [tensor["name"] for tensor in event["inputs"]] == list(spec.model.example)
