"""The native backend on a real GPU: values that the CPU reads, captures that fail, and callers in Python.

`tests/server/own/test_native_cuda_cases.py` has the same on a GPU that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.server.cuda_models import (
    ON_GPU,
    ON_GPU_AFTER,
    ROWS,
    WINDOW,
    caller,
    cuda,
    double,
    ensemble,
    window,
)
from tests.server.onnx_models import onnx_model, tensors
from tritonkit.client import Client
from tritonkit.serve import Server

pytestmark = pytest.mark.gpu


def counted(folder: Path, more: str) -> None:
    """y = x, of ROWS numbers, plus the sum of the places where x is not zero."""
    onnx_model(
        folder,
        [
            helper.make_node("NonZero", ["x"], ["places"]),
            helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["numbers"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, [ROWS])],
        [("y", TensorProto.FLOAT, [ROWS])],
        tensors("input", x=f"FP32 [{ROWS}]") + tensors("output", y=f"FP32 [{ROWS}]") + more,
    )


MODELS = {
    "window": lambda folder: window(folder, ON_GPU + cuda()),
    "counted": lambda folder: counted(folder, ON_GPU + cuda()),
    "double": lambda folder: double(folder, ON_GPU + cuda()),
    "caller": lambda folder: caller(folder, "double"),
    "kept": lambda folder: double(folder, ON_GPU + cuda() + ON_GPU_AFTER),
    "twice": lambda folder: ensemble(folder, "kept", "kept"),
}
TIMES = {"double": 2, "caller": 2, "twice": 4}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server with these models."""
    root = tmp_path_factory.mktemp("native")
    for name, write in MODELS.items():
        write(root / "repository" / name)
    server = Server(root / "repository", root=root, require=tuple(MODELS), grpc_port=0, metrics_port=0)
    with Client(server.start().grpc) as client:
        yield client
    server.stop()


def test_an_input_that_the_cpu_reads_keeps_its_meaning(client: Client) -> None:
    """ONNX Runtime tells the backend that the CPU reads the ends of a Slice, so there is no graph."""
    x = np.arange(ROWS, dtype=np.float32)
    for start in (0, 3, 7, 1):
        reply = client.model("window").predict(x=x, starts=np.array([start]))
        np.testing.assert_array_equal(reply["y"], x[start : start + WINDOW])


def test_a_failed_capture_is_served_without_graphs(client: Client) -> None:
    """A NonZero waits for the GPU, which CUDA does not permit during a capture; other models keep their graphs."""
    for zeros in (0, 3, ROWS):
        x = np.where(np.arange(ROWS) < zeros, 0, 1).astype(np.float32)
        expected = x + np.arange(zeros, ROWS).sum()
        np.testing.assert_array_equal(client.model("counted").predict(x=x)["y"], expected.astype(np.float32))


@pytest.mark.parametrize("model", TIMES)
def test_answers_reach_python_and_the_next_model(client: Client, model: str) -> None:
    """Python reads an answer as an array; an ensemble hands it on within the GPU."""
    x = np.random.default_rng(4).random((8, ROWS), np.float32)
    for size in (1, 1, 3, 8):
        np.testing.assert_array_equal(client.model(model).predict(x=x[:size])["y"], TIMES[model] * x[:size])
