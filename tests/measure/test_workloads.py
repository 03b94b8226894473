"""What a project's own models are sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.client import Client
from tritonkit.errors import UsageError
from tritonkit.measure.workloads import prepare
from tritonkit.testing import FakeModel, MemoryTransport

NET = (
    "name: net\nnetwork: {torch: net:build, inputs: {x: {dtype: FP32, shape: [4]}},"
    " outputs: {y: {dtype: FP32, shape: [4]}}}\n"
)
DOUBLE = FakeModel({"x": ("FP32", [4])}, {"y": ("FP32", [4])}, lambda given: {"y": 2 * given["x"]})


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
    model = FakeModel({"x": ("BYTES", [1])}, {"y": ("BYTES", [1])}, lambda given: {"y": given["x"]})
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
        "from tritonkit.measure import Request, Workload, expect_label\n"
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
