"""Requests to a project's own models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.client import Client
from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.errors import UsageError
from tritonkit.perf.load.inputs import read_inputs, split_inputs
from tritonkit.perf.load.kinds import STREAM, answers_to, kind_of
from tritonkit.perf.load.workloads import prepare
from tritonkit.testing import FakeModel, MemoryTransport

NET = (
    "name: net\nnetwork: {torch: net:build, inputs: {x: {dtype: FP32, shape: [4]}},"
    " outputs: {y: {dtype: FP32, shape: [4]}}}\n"
)
DOUBLE = FakeModel({"x": ("FP32", [4])}, {"y": ("FP32", [4])}, lambda inputs: {"y": 2 * inputs["x"]})


def test_a_model_without_an_example_gets_made_up_items(root: Path, write_model: WriteModel) -> None:
    """Single items of its shapes; an answer of another shape is wrong."""
    write_model(NET, net__py="")
    with Client(transport=MemoryTransport({"net": DOUBLE})) as client:
        workload = prepare("net", root, client)
    assert {request.inputs["x"].shape for request in workload.requests} == {(1, 4)}
    first = workload.requests[0]
    assert first.check({"y": 2 * first.inputs["x"]}) == ""
    assert "y" in first.check({"y": np.zeros((1, 5), np.float32)})


def test_text_is_not_made_up(root: Path, write_model: WriteModel) -> None:
    """The message names what to add."""
    write_model(NET, net__py="")
    model = FakeModel({"x": ("BYTES", [1])}, {"y": ("BYTES", [1])}, lambda inputs: {"y": inputs["x"]})
    with (
        Client(transport=MemoryTransport({"net": model})) as client,
        pytest.raises(UsageError, match="no example for input x"),
    ):
        prepare("net", root, client)


def test_a_function_of_the_project_makes_the_requests(root: Path) -> None:
    """`WORKLOADS` of its loadtest/workloads.py, also for a model that ships."""
    file = root / "loadtest" / "workloads.py"
    file.parent.mkdir()
    file.write_text(
        "from tritonkit.perf.load import Request, Workload, expect_label\n"
        "def digits(root, client):\n"
        "    return Workload('digits', (Request({'image': str(root)}, expect_label('7')),))\n"
        "WORKLOADS = {'digits': digits}\n"
    )
    with Client(transport=MemoryTransport({})) as client:
        (request,) = prepare("digits", root, client).requests
    assert request.inputs == {"image": str(root)}
    file.write_text("")
    with pytest.raises(UsageError, match="no WORKLOADS"):
        prepare("digits", root, client)


def streams(inputs: Any) -> Any:
    """Two replies."""
    for _ in range(2):
        yield {"y": inputs["x"]}


def test_a_stream_is_held_to_the_kind_of_its_replies(root: Path) -> None:
    """Without a spec, a free axis gets a size that the model takes, and each reply is checked."""

    def only_64(inputs: Any) -> Any:
        if inputs["x"].shape[-1] != 64:
            raise ValueError("64 is what it takes")
        yield from streams(inputs)

    model = FakeModel({"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}, only_64)
    with Client(transport=MemoryTransport({"net": model})) as client:
        assert kind_of(client, "net") == STREAM
        (request,) = prepare("net", root, client).requests
        assert request.inputs["x"].shape == (1, 64)
        assert [request.check(reply) for reply in answers_to(client, "net", request.inputs, STREAM)] == ["", ""]
    assert "type and rank" in request.check({"y": np.zeros(3, np.float32)})
    assert "NaN" in request.check({"y": np.full((1, 3), np.nan, np.float32)})


def test_given_inputs_are_sent(root: Path, tmp_path: Path) -> None:
    """Inputs as for `tritonkit call`, also for text without an example; a file's float64 is rounded with a note."""
    model = FakeModel({"x": ("BYTES", [1])}, {"y": ("BYTES", [1])}, lambda inputs: {"y": inputs["x"]})
    with Client(transport=MemoryTransport({"net": model, "double": DOUBLE})) as client:
        (request,) = prepare("net", root, client, ["x=hello"]).requests
        assert request.inputs == {"x": "hello"}
        with pytest.raises(UsageError, match="no example for input x"):
            prepare("net", root, client)
        np.save(tmp_path / "x.npy", np.array([0.1, 2, 3, 4]))
        notes: list[str] = []
        inputs = split_inputs([f"x=@{tmp_path}/x.npy"])
        read = read_inputs(inputs, client.model("double").signature, notes)
        assert read["x"].dtype == np.float32
        assert read["x"].tolist() == np.float32([0.1, 2, 3, 4]).tolist()
        assert notes == ["--input x: converted from float64 to float32, rounded"]


@pytest.mark.parametrize(
    ("own", "datatype", "dtype"),
    [
        (np.array([1.5]), "FP32", "float32"),
        (np.array([1e300]), "FP32", "float64"),
        (np.array([1, -2]), "INT32", "int32"),
        (np.array([2**40]), "INT32", "int64"),
        (np.array([-1]), "UINT8", "int64"),
        (np.array([3]), "FP32", "float32"),
        (np.array([2**24 + 1]), "FP32", "int64"),
        (np.array([1.0]), "INT64", "float64"),
        (np.array([1, 0]), "BOOL", "bool"),
        (np.array([2]), "BOOL", "int64"),
        (np.array([True]), "INT64", "bool"),
        (np.array([1.5]), "BF16", "float32"),
    ],
)
def test_a_file_of_numpys_own_types(own: Any, datatype: str, dtype: str) -> None:
    """Whole numbers are converted where all fit, floats rounded; what is left as it is the client refuses or takes."""
    signature = ModelSignature("m", ("1",), 0, {"x": TensorSpec("x", datatype, (-1,))}, {})
    made = read_inputs({"x": own}, signature)["x"]
    assert made.dtype.name == dtype
    if dtype != own.dtype.name:
        np.testing.assert_allclose(made, own)
