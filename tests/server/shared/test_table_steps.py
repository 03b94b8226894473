"""A table's model, built from a spec and served: records to features to a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper, numpy_helper

from tests.server.raw import Running, ask, ask_together, items
from tests.server.sharing import SharedBackends
from tritonkit.repository.pipeline import build_repository

WEIGHTS = np.float32([[1], [10], [100], [1000]])
FEATURES = """- {name: age, default: 30, scale: {mean: 20, std: 10}}
- {name: city, kind: one_hot, categories: [Oslo, Köln]}
- {name: member, kind: bool}
"""


def write_prices(models: Path) -> None:
    """A linear model of four numbers."""
    folder = models / "prices"
    folder.mkdir(parents=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["price"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("price", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    (folder / "features.yaml").write_text(FEATURES)
    (folder / "model.yaml").write_text(
        "name: prices\nnetwork: {onnx: net.onnx}\npipeline:\n"
        "- {step: assemble_features, parameters: {features: features.yaml, size: 4}, outputs: {features: x}}\n"
        "- network\n"
        """example: {record: {text: '{"city": "Oslo", "member": false}'}}\n"""
    )


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The pipeline as a build publishes it."""
    root = tmp_path_factory.mktemp("tables")
    write_prices(root / "models")
    built = build_repository(root, cores=2)

    def write(repository: Path) -> None:
        for folder in built.path.iterdir():
            if (folder / "config.pbtxt").is_file():
                shutil.copytree(folder, repository / folder.name)

    with native_server.serving(write) as running:
        yield running


def test_prices_of_records(triton: Running) -> None:
    """Requests that come together have their own answers; an unknown category, a missing column and text that is not
    JSON fail alone."""
    records = [
        {"age": 40, "city": "Köln", "member": True},
        {"city": "Oslo", "member": False},
        {"city": "Paris", "member": False},
        {"city": "Oslo"},
    ]
    requests = [{"record": items(json.dumps(record).encode())} for record in records]
    with grpc.InferenceServerClient(triton.address) as client:
        given = ask_together(client, "prices", [*requests, {"record": items(b"{")}])
        both = ask(client, "prices", record=np.concatenate([request["record"] for request in requests[:2]]))
    np.testing.assert_array_equal(both["price"], [[1102], [11]])
    for answer, price in zip(given, (1102, 11), strict=False):
        assert isinstance(answer, dict)
        np.testing.assert_array_equal(answer["price"], [[price]])
    unknown = (
        """input 'record', item 0, column "city": found the unknown category "Paris", wanted one of "Oslo", "Köln\""""
    )
    assert unknown in str(given[2])
    assert """column "member": it is missing or null, and the feature has no default""" in str(given[3])
    assert "input 'record', item 0: not JSON at character 1" in str(given[4])
