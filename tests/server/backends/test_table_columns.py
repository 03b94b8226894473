"""A table's columns as tensors: a real server gives the answers of equal rows in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

from tritonkit import Client
from tritonkit.client import Reply
from tritonkit.errors import InferenceError, InvalidInput
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

CALLERS = 16
FEATURES = """- {name: age, default: 38, scale: {mean: 38.5, std: 13.2}}
- {name: city, kind: one_hot, categories: [Oslo, Köln], default: Oslo}
- {name: member, kind: bool}
- {name: grade, kind: index, categories: [0, 5, 10], unknown: -1}
- {name: rest, default: 7}
"""
COLUMNS = "[age FP64 optional, city BYTES optional, member BOOL, grade INT64]"
MORE = {"records": "", "columns": f", columns: {COLUMNS}", "missing": f", columns: {COLUMNS}, nan: missing"}
EXAMPLES = {
    "records": """{record: {text: '{"member": false, "grade": 5}'}}""",
    "columns": "{city: {text: Köln}}",
    "missing": "{}",
}
ROWS: list[dict[str, Any]] = [
    {"age": age, "city": city, "member": member, "grade": grade}
    for age in (0.1, 38.5, -7.3, 1e30)
    for city in ("Oslo", "Köln")
    for member, grade in ((True, 0), (False, 5), (True, 11))
]
TYPES = {"age": np.float64, "city": object, "member": np.bool_, "grade": np.int64}


def write(models: Path, name: str) -> None:
    """A linear model of six numbers."""
    folder = models / name
    folder.mkdir(parents=True)
    weights = np.float32([[1], [10], [100], [1000], [3], [5]])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["price"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("price", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    (folder / "features.yaml").write_text(FEATURES)
    (folder / "model.yaml").write_text(
        f"name: {name}\nnetwork: {{onnx: net.onnx}}\npipeline:\n- step: assemble_features\n"
        f"  parameters: {{features: features.yaml, size: 6{MORE[name]}}}\n  outputs: {{features: x}}\n"
        f"- network\nexample: {EXAMPLES[name]}\n"
    )


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The inputs of a request with these rows."""
    return {name: np.array([[row[name]] for row in rows], dtype=TYPES[name]) for name in rows[0]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server with a model that takes JSON, and two that take columns."""
    root = tmp_path_factory.mktemp("tables")
    for name in MORE:
        write(root / "models", name)
    built = build_repository(root, cores=2)
    with (
        serve(built.path, root=root, grpc_port=0, http_port=0, metrics_port=0) as endpoint,
        Client(endpoint.grpc) as made,
    ):
        yield made


def test_columns_give_the_answers_of_records(client: Client) -> None:
    """To the last bit: row by row from 16 callers, and all rows in one request."""
    table, records = client.model("columns"), client.model("records")
    lines = np.array([[json.dumps(row).encode()] for row in ROWS], dtype=object)
    expected = np.concatenate([records.predict(record=lines[place : place + 8])["price"] for place in range(0, 24, 8)])
    with ThreadPoolExecutor(CALLERS) as pool:
        alone = list(pool.map(lambda row: table.predict(inputs=columns([row]))["price"], ROWS * 4))
    np.testing.assert_array_equal(np.concatenate(alone), np.concatenate([expected] * 4))
    batches = [table.predict(inputs=columns(ROWS[place : place + 8]))["price"] for place in range(0, 24, 8)]
    np.testing.assert_array_equal(np.concatenate(batches), expected)
    assert len(np.unique(expected)) > 12


def test_columns_that_are_left_out_have_their_defaults(client: Client) -> None:
    """Next to callers who send them; NaN takes the default where `nan` says so."""
    table, records = client.model("columns"), client.model("records")
    row = {"member": True, "grade": 10}
    expected = records.predict(record=json.dumps(row).encode())["price"]
    other = records.predict(record=json.dumps(ROWS[4]).encode())["price"]
    with ThreadPoolExecutor(CALLERS) as pool:
        given = list(pool.map(lambda one: table.predict(inputs=columns([one]))["price"], [row, ROWS[4]] * 16))
    np.testing.assert_array_equal(np.stack(given), [expected, other] * 16)
    lacking = columns([{"age": float("nan"), **row}])
    np.testing.assert_array_equal(client.model("missing").predict(inputs=lacking)["price"], expected)


def test_a_required_column_that_is_missing_is_one_callers_error(client: Client) -> None:
    """tritonkit's client refuses it before it is sent; Triton refuses it from others, and answers the rest."""
    given = columns([ROWS[0]])
    lacking = {name: given[name] for name in ("age", "city", "grade")}
    with pytest.raises(InvalidInput, match="no value for input member"):
        client.model("columns").predict(inputs=lacking)
    inputs = [
        grpc.InferInput(name, [1, 1], kind) for name, kind in (("age", "FP64"), ("city", "BYTES"), ("grade", "INT64"))
    ]
    for entry in inputs:
        entry.set_data_from_numpy(lacking[entry.name()])

    def ask(number: int) -> Reply | str:
        if number % 2:
            return client.model("columns").predict(inputs=given)
        try:
            with grpc.InferenceServerClient(client.address) as other:
                other.infer("columns", inputs)
        except InferenceServerException as error:
            return str(error.status())
        return "answered"

    with ThreadPoolExecutor(CALLERS) as pool:
        made = list(pool.map(ask, range(4 * CALLERS)))
    assert set(made[::2]) == {"StatusCode.INVALID_ARGUMENT"}
    alone = client.model("columns").predict(inputs=given)["price"]
    for reply in made[1::2]:
        assert isinstance(reply, Reply)
        np.testing.assert_array_equal(reply["price"], alone)


def test_a_bad_column_is_one_callers_error(client: Client) -> None:
    """Its message names item and column, and others are answered."""
    table = client.model("columns")
    good = ROWS[0]
    bad = [
        columns([good, {**good, "city": "Paris"}]),
        columns([{**good, "city": b"\xff"}]),
        columns([{**good, "age": float("nan")}]),
        columns([{**good, "age": float("inf")}]),
    ]

    def ask(inputs: dict[str, Any]) -> Reply | InferenceError:
        try:
            return table.predict(inputs=inputs)
        except InferenceError as error:
            return error

    with ThreadPoolExecutor(CALLERS) as pool:
        *errors, answer = pool.map(ask, [*bad, columns([good])])
    assert isinstance(answer, Reply)
    for error, message in zip(
        errors,
        (
            'item 1, column "city": found the unknown category "Paris"',
            'item 0, column "city": not valid UTF-8 at byte 0',
            'item 0, column "age": found NaN',
            'item 0, column "age": found an infinite',
        ),
        strict=True,
    ):
        assert message in str(error)
