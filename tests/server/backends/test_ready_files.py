"""Ready-made files and a hand-written model on a real Triton, asked by many callers at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import PROJECT
from tests.repository.optimize.ready_files import expected, requests, write_graph
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.serve import serve

CALLERS = 16
CONFIG = """
name: "adds"  # as its author called it
backend: "python"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "kept" data_type: TYPE_INT64 dims: [ 4 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }]
instance_group [{ count: 2 kind: KIND_CPU }]
dynamic_batching { max_queue_delay_microseconds: 2000 }
parameters { key: "scale" value { string_value: "1.0" } }
"""
MODEL = """
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        scale = float(json.loads(args["model_config"])["parameters"]["scale"]["string_value"])
        self.weight = scale * np.load(Path(args["model_repository"]) / args["model_version"] / "tables" / "weight.npy")

    def execute(self, requests):
        responses = []
        for request in requests:
            x, kept = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("x", "kept"))
            y = np.maximum(x * kept @ self.weight.T, 0).astype(np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]))
        return responses
"""


def write_triton_model(folder: Path) -> None:
    """A model as somebody wrote it for Triton: two versions, a file in a folder, labels."""
    for version, text in ((1, "this version is not served"), (2, MODEL)):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.py").write_text(text)
    (folder / "2" / "tables").mkdir()
    np.save(folder / "2" / "tables" / "weight.npy", np.arange(12, dtype=np.float32).reshape(3, 4) - 6)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "labels.txt").write_text("a\nb\nc\n")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of all kinds of files that this server environment can open."""
    root = tmp_path_factory.mktemp("project")
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    models = root / "models"
    for name in ("graph", "whole", "written"):
        (models / name).mkdir(parents=True)
    for name, shapes in (("graph", [-1, 4]), ("whole", [2, 4])):
        write_graph(models / name, "net.xml", {"x": shapes, "kept": shapes})
        (models / name / "model.yaml").write_text(f"{{name: {name}, network: {{file: net.xml}}}}")
    write_triton_model(models / "written" / "triton")
    (models / "written" / "model.yaml").write_text("{name: written, network: {folder: triton}}")
    repository = build_repository(root).path
    assert not verify(repository)
    with (
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=PROJECT) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
    ):
        yield client


@pytest.mark.parametrize("name", ["graph", "written"])
def test_many_callers_get_what_the_library_gives(client: Client, random: np.random.Generator, name: str) -> None:
    """Whatever batches Triton made of them."""
    model, given = client.model(name), requests(random)
    with ThreadPoolExecutor(CALLERS) as callers:
        replies = list(callers.map(lambda inputs: model.predict(inputs=inputs), given))
    for inputs, reply in zip(given, replies, strict=True):
        y, total = expected(**inputs)
        np.testing.assert_allclose(reply["y"], y, rtol=1e-5, atol=1e-5)
        if "total" in reply:
            np.testing.assert_allclose(np.ravel(reply["total"]), total, rtol=1e-5, atol=1e-5)


def test_a_graph_of_fixed_sizes_takes_all_rows(client: Client, random: np.random.Generator) -> None:
    """It has no batch axis, so a request has the file's own shape."""
    inputs = {"x": random.standard_normal((2, 4), np.float32), "kept": random.integers(0, 2, (2, 4))}
    reply = client.model("whole").predict(inputs=inputs)
    np.testing.assert_allclose(reply["y"], expected(**inputs)[0], rtol=1e-5, atol=1e-5)


def test_a_hand_written_configuration_stays(client: Client) -> None:
    """Its fields are the author's; the name is the model's own."""
    config = client.config("written")
    assert config.name == "written"
    assert config.backend == "python"
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert [(group.count, group.Kind.Name(group.kind)) for group in config.instance_group] == [(2, "KIND_CPU")]
    assert config.output[0].label_filename == "labels.txt"
    assert config.parameters["scale"].string_value == "1.0"
