"""A `model.py` under test without a server: the ways to load it, what it is handed, and the words of errors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.repository.python_model.cases import MODELS, config_of
from tritonkit.errors import InferenceError, InvalidInput, ServerStartError, UsageError
from tritonkit.testing import PythonModel, PythonRequest

X = np.array([[1, 2]], np.float32)
SPEC = """
name: net
network:
  python: serving/model.py
  files: [words.txt]
  inputs: {x: {dtype: FP32, shape: [2]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
pipeline: [{step: clean, parameters: {factor: 3}}, network]
"""
STEP = """
description: multiplies
parameters: {factor: {type: int, default: 2}}
inputs: {raw: {dtype: FP32, shape: [2]}}
outputs: {x: {dtype: FP32, shape: [2]}}
"""
CLEAN = """import json
import helper
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.factor = int(json.loads(args["model_config"])["parameters"]["factor"]["string_value"])

    def execute(self, requests):
        return [helper.answer(r, self.factor) for r in requests]
"""
HELPER = """import triton_python_backend_utils as pb_utils

def answer(request, factor):
    [raw] = request.inputs()
    return pb_utils.InferenceResponse([pb_utils.Tensor("x", raw.as_numpy() * factor)])
"""
NETWORK = """from pathlib import Path
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        version = Path(args["model_repository"], args["model_version"])
        self.count = len((version / "words.txt").read_text().split())
        assert version == Path(__file__).parent

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", r.inputs()[0].as_numpy() * self.count)]) for r in requests
        ]

    def finalize(self):
        Path("{seen}").write_text("finalized")
"""


def model(folder: Path, name: str, **options: object) -> PythonModel:
    """One of the models that a real server has too."""
    (folder / "model.py").write_text(MODELS[name])
    return PythonModel(folder / "model.py", f'name: "{name}"\n{config_of(name)}', **options)  # type: ignore[arg-type]


def test_several_requests_are_one_batch(tmp_path: Path) -> None:
    """One call of `execute` gives an answer to each of them."""
    with model(tmp_path, "double") as double:
        answers = double.execute([PythonRequest({"x": X}), PythonRequest({"x": np.float32([[3, 4], [5, 6]])})])
        assert [answer["y"].tolist() for answer in answers] == [[[2, 4]], [[6, 8], [10, 12]]]
        assert double.predict(x=[[np.float32(1), np.float32(0)]])["y"].tolist() == [[2, 0]]


def test_a_model_of_a_project(write_model: WriteModel, root: Path, tmp_path: Path) -> None:
    """A step and a network of a spec, with parameters, files and modules where a build would put them; nothing is
    built."""
    step = root / "models" / "net" / "steps" / "clean"
    (root / "models" / "net" / "serving").mkdir(parents=True)
    step.mkdir(parents=True)
    for file, text in {"step.yaml": STEP, "model.py": CLEAN, "helper.py": HELPER}.items():
        (step / file).write_text(text)
    seen = tmp_path / "seen"
    (root / "models" / "net" / "serving" / "model.py").write_text(NETWORK.replace("{seen}", str(seen)))
    write_model(SPEC, words__txt="a b c")
    before = set(sys.modules)
    with PythonModel.of_project("net_clean", root) as clean:
        assert clean.predict(raw=X)["x"].tolist() == [[3, 6]]
    with PythonModel.of_project("net_clean", root, parameters={"factor": "5"}) as clean:
        assert clean.predict(raw=X)["x"].tolist() == [[5, 10]]
    with PythonModel.of_project("net_network", root) as network:
        assert network.predict(x=X)["y"].tolist() == [[3, 6]]
        assert not seen.exists()
    assert seen.read_text() == "finalized"
    assert not {"model", "helper", "triton_python_backend_utils"} & (set(sys.modules) - before)
    for name in ("net_other", "no", "net"):
        with pytest.raises(UsageError) as caught:
            PythonModel.of_project(name, root)
        assert caught.value.found == "no spec of the project has such a model" or name == "net"


def test_a_published_model(project: Path) -> None:
    """A shipped step as it is in a repository, with its file of labels."""
    with PythonModel.published(project / "model_repository" / "digits_top_k") as top_k:
        scores = np.zeros((1, 10), np.float32)
        scores[0, 7] = 9
        outputs = top_k.predict(**{tensor["name"]: scores for tensor in top_k.config["input"]})
    assert any(np.asarray(array).ravel()[0] in (7, b"7") for array in outputs.values())
    with pytest.raises(UsageError, match="no published model"):
        PythonModel.published(project / "models")


def test_calls_of_other_models(tmp_path: Path) -> None:
    """Functions and other models answer them; an error of a function is the answer's."""
    asked: list[np.ndarray] = []

    def double(x: np.ndarray) -> dict[str, np.ndarray]:
        asked.append(x)
        return {"y": 10 * x, "unasked": x}

    with model(tmp_path, "calls", calls={"double": double}) as caller:
        assert caller.predict(x=X)["y"].tolist() == [[11, 21]]
        np.testing.assert_array_equal(asked[0], X)

    def broken(x: np.ndarray) -> dict[str, np.ndarray]:
        raise ValueError("no such item")

    with model(tmp_path, "calls", calls={"double": broken}) as caller, pytest.raises(InferenceError) as caught:
        caller.predict(x=X)
    assert "ValueError: no such item" in caught.value.found


def test_the_answer_says_what_kind_of_error_it_is(tmp_path: Path) -> None:
    """The words and the code are the model's own; an exception fails each request of the call."""
    with model(tmp_path, "refuses") as refuses:
        [answer] = refuses.execute([PythonRequest({"x": X}, request_id="seven")])
    assert answer.code == "INVALID_ARG"
    with pytest.raises(InferenceError, match="too dark") as caught:
        answer["y"]
    assert caught.value.where == "model refuses, request seven"
    with model(tmp_path, "fails") as fails:
        answers = fails.execute([PythonRequest({"x": X})] * 2)
    for answer in answers:
        assert answer.code == "INTERNAL"
        assert answer.error is not None
        assert "message: ZeroDivisionError: division by zero" in answer.error.found
        assert (
            f"model.py({MODELS['fails'].splitlines().index(MODELS['fails'].splitlines()[-1]) + 1}): "
            in answer.error.found
        )


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ({"z": X}, "no such input"),
        ({}, "it is missing"),
        ({"x": X.astype(np.float64)}, "dtype float64"),
        ({"x": X[0]}, "shape [2]"),
        ({"x": np.zeros((1, 3), np.float32)}, "shape [1, 3]"),
        ({"x": np.zeros((5, 2), np.float32)}, "batches of [5]"),
    ],
)
def test_requests_that_triton_would_refuse(tmp_path: Path, inputs: dict[str, np.ndarray], found: str) -> None:
    """They do not reach the model's Python."""
    with model(tmp_path, "double") as double, pytest.raises(InvalidInput) as caught:
        double.execute([PythonRequest(inputs)])
    assert caught.value.found == found


@pytest.mark.parametrize("data_type", ["TYPE_BF16", "TYPE_FP7"])
def test_types_that_numpy_has_not(tmp_path: Path, data_type: str) -> None:
    """The message names the input and its type."""
    (tmp_path / "model.py").write_text(MODELS["double"])
    config = {"input": [{"name": "x", "data_type": data_type, "dims": [2]}]}
    with PythonModel(tmp_path / "model.py", config) as double, pytest.raises(InvalidInput) as caught:
        double.predict(x=X[0])
    assert caught.value.where == "input x"
    assert caught.value.found == f"data_type {data_type}"


def test_a_model_that_does_not_load(tmp_path: Path) -> None:
    """The reason is the model's own."""
    for code, found in (
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1", "AttributeError: module 'model' has no attribute 'TritonPythonModel'"),
        (
            "import triton_python_backend_utils as u\nclass TritonPythonModel:\n    def initialize(self, args):\n"
            "        raise u.TritonModelException('needs a GPU')\n",
            "needs a GPU",
        ),
    ):
        (tmp_path / "model.py").write_text(code)
        with pytest.raises(ServerStartError) as caught:
            PythonModel(tmp_path / "model.py", {"name": "m"})
        assert caught.value.found == found


def test_a_stream_without_an_end(tmp_path: Path) -> None:
    """A caller would wait for ever: the answer says so."""
    code = MODELS["counts"].replace("            sender.send(flags=", "            (lambda flags: None)(flags=")
    (tmp_path / "model.py").write_text(code)
    with PythonModel(tmp_path / "model.py", f'name: "counts"\n{config_of("counts")}', patience_s=0.01) as counts:
        [answer] = counts.execute([PythonRequest({"x": np.float32([2, -1])})])
    assert answer.error is not None
    assert "sent no TRITONSERVER_RESPONSE_COMPLETE_FINAL within 0.01 s" in answer.error.found


def test_a_sequence_needs_its_id(tmp_path: Path) -> None:
    """As Triton demands it of a model that keeps sequences."""
    with model(tmp_path, "sequences") as sequences, pytest.raises(InvalidInput, match="keeps sequences"):
        sequences.execute([PythonRequest({"x": X})])
