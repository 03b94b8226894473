"""The network's part of a profile: the served files run here, on what a request becomes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.client import Client
from tritonkit.errors import UsageError
from tritonkit.perf.load.network import example_inputs, profile_network
from tritonkit.repository.modelspec import Spec
from tritonkit.testing import FakeModel, MemoryTransport

SERVED = FakeModel(
    inputs={"x": ("FP32", [4])}, outputs={"y": ("FP32", [4])}, function=lambda inputs: {"y": np.maximum(inputs["x"], 0)}
)
TEXT = "name: net\nnetwork: {onnx: relu.onnx}\n"
DATA = "import numpy as np\ndef held_out():\n    return [{'x': np.full((3, 4), 7, 'float32')}]\n"


@pytest.fixture
def spec(write_model: WriteModel) -> Spec:
    """A network without steps, with samples of its own."""
    text = TEXT + "quality: {samples: data:held_out}\n"
    return write_model(text, relu__onnx=onnx_file(RELU, ["batch", 4]), data__py=DATA)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files that a server of that network reads."""
    version = tmp_path / "served" / "net" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    (version / "manifest.json").write_text(json.dumps({"variant": "onnx-fp32", "files": {}}))
    return version.parent.parent


@pytest.fixture
def client() -> Client:
    """A client of a server that serves it."""
    return Client(transport=MemoryTransport({"net": SERVED}))


def test_the_served_version_is_profiled_here(spec: Spec, repository: Path, client: Client) -> None:
    """Times are listed by operator, with the runtime and its threads."""
    profile = profile_network(spec, client, repository, {"x": np.ones((1, 4), np.float32)})
    assert profile.problem == ""
    assert (profile.model, profile.variant, profile.runtime) == ("net", "onnx-fp32", "onnxruntime")
    assert [operator.kind for operator in profile.operators] == ["Relu"]
    assert profile.ms == profile.operators[0].ms > 0
    assert profile.threads >= 1
    assert profile.to_dict()["operators"][0]["share"] == 1


def test_a_version_that_is_not_here_costs_the_operators_alone(spec: Spec, tmp_path: Path, client: Client) -> None:
    """A server on another machine has its files there; the message says what was looked for."""
    profile = profile_network(spec, client, tmp_path, {"x": np.ones((1, 4), np.float32)})
    assert profile.operators == ()
    assert str(tmp_path / "net" / "1") in profile.problem


def test_a_request_is_made_of_the_samples(spec: Spec, root: Path, client: Client) -> None:
    """Arrays come from the network's own samples: the first item, batch axis first."""
    inputs = example_inputs(spec, root, client)
    np.testing.assert_array_equal(inputs["x"], np.full((1, 4), 7, np.float32))


def test_a_request_is_made_of_the_example(write_model: WriteModel, root: Path) -> None:
    """Text and files of model.yaml are sent as they are."""
    spec = write_model(
        "name: net\nnetwork: {onnx: relu.onnx}\nexample: {text: {text: hello}, image: {file: a.png}}\n",
        relu__onnx=onnx_file(RELU, ["batch", 4]),
        a__png=b"png",
    )
    model = FakeModel({"text": ("BYTES", [1]), "image": ("BYTES", [1])}, SERVED.outputs, SERVED.function)
    with Client(transport=MemoryTransport({"net": model})) as client:
        assert example_inputs(spec, root, client) == {"text": b"hello", "image": b"png"}


def test_an_input_without_real_data_is_a_mistake_of_the_spec(spec: Spec, root: Path) -> None:
    """The message says where to give it."""
    model = FakeModel({"text": ("BYTES", [1])}, SERVED.outputs, SERVED.function)
    with Client(transport=MemoryTransport({"net": model})) as client, pytest.raises(UsageError) as caught:
        example_inputs(spec, root, client)
    assert "no example for input text" in caught.value.found
    assert caught.value.where.endswith("model.yaml example")
