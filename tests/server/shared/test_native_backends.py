"""Features of the native backends alone, inside a real Triton.

test_python_backends tests both kinds, test_native_limits their refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper

from tests.server.onnx_models import BATCH, identity, onnx_model, tensors, through
from tests.server.raw import Running, ask
from tests.server.sharing import SharedBackends

TYPES = {
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BOOL": TensorProto.BOOL,
}
SIZE = f"max_batch_size: {BATCH}\n"

STATE = """
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
  state {
    input_name: "total_in" output_name: "total_out" data_type: TYPE_FP32 dims: [2]
    initial_state { name: "zero" data_type: TYPE_FP32 dims: [2] zero_data: true }
  }
}
"""


def write_networks(root: Path) -> None:
    """One of each type, a running sum, a product on two instances."""
    for name, kind in TYPES.items():
        identity(root / f"type_{name.lower()}", kind, ["n", 3], SIZE + through(f"{name} [3]"))
    onnx_model(
        root / "sum",
        [
            helper.make_node("Cast", ["START"], ["start"], to=TensorProto.FLOAT),
            helper.make_node("Constant", [], ["one"], value_float=1.0),
            helper.make_node("Sub", ["one", "start"], ["keep"]),
            helper.make_node("Mul", ["total_in", "keep"], ["before"]),
            helper.make_node("Add", ["x", "before"], ["total_out"]),
            helper.make_node("Identity", ["total_out"], ["y"]),
        ],
        [
            ("x", TensorProto.FLOAT, ["n", 2]),
            ("START", TensorProto.INT32, ["n", 1]),
            ("total_in", TensorProto.FLOAT, ["n", 2]),
        ],
        [("y", TensorProto.FLOAT, ["n", 2]), ("total_out", TensorProto.FLOAT, ["n", 2])],
        SIZE + through("FP32 [2]") + STATE,
    )
    weights = helper.make_tensor("w", TensorProto.FLOAT, [64, 96], np.random.default_rng(0).random(64 * 96))
    onnx_model(
        root / "product",
        [helper.make_node("Constant", [], ["w"], value=weights), helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT, ["n", 64])],
        [("y", TensorProto.FLOAT, ["n", 96])],
        SIZE
        + tensors("input", x="FP32 [64]")
        + tensors("output", y="FP32 [96]")
        + "instance_group { count: 2 kind: KIND_CPU }\n",
    )


@pytest.fixture(
    scope="module", params=[pytest.param("native_server", id="cpu"), pytest.param("cuda_server", id="cuda")]
)
def triton(request: pytest.FixtureRequest) -> Iterator[Running]:
    """The native backends with the networks of this file, on the CPU and on a GPU."""
    server: SharedBackends = request.getfixturevalue(request.param)
    with server.serving(write_networks) as running:
        yield running


Client = grpc.InferenceServerClient


@pytest.mark.parametrize("name", TYPES)
def test_every_type_passes(client: Client, name: str) -> None:
    """Every bit of every value, once and again: the second answer is written in place."""
    kind = np.dtype(np.bool_ if name == "BOOL" else name.lower().replace("fp", "float"))
    random = np.random.default_rng(1)
    for count in (1, 1, 2, BATCH, 1):
        values = random.integers(0, 256, (count, 3 * kind.itemsize), np.uint8)
        array = (values & 1 if name == "BOOL" else values).view(kind).reshape(count, 3)
        answer = ask(client, f"type_{name.lower()}", x=array)["y"]
        assert answer.tobytes() == array.tobytes()


def test_a_sequence_keeps_its_state(client: Client) -> None:
    """Two interleaved sequences each add up their own values."""
    totals = {1: np.zeros(2, np.float32), 2: np.zeros(2, np.float32)}
    for number in range(4):
        for sequence, total in totals.items():
            x = np.full((1, 2), sequence * (number + 1), np.float32)
            total += x[0]
            tensor = grpc.InferInput("x", [1, 2], "FP32")
            tensor.set_data_from_numpy(x)
            result = client.infer(
                "sum", [tensor], sequence_id=sequence, sequence_start=number == 0, sequence_end=number == 3
            )
            np.testing.assert_array_equal(result.as_numpy("y"), total[None])


def test_answers_are_the_engines_own(client: Client, triton: Running) -> None:
    """Bit for bit what ONNX Runtime gives in process, from either of two instances."""
    file = triton.repository / "product" / "1" / "model.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    for count in (1, 3, 1, BATCH):
        x = np.random.default_rng(count).random((count, 64), np.float32)
        expected = session.run(["y"], {"x": x})[0]
        assert ask(client, "product", x=x)["y"].tobytes() == expected.tobytes()
