"""What the native backends alone do, inside a real Triton; test_python_backends has what both kinds do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.server.test_python_backends import (
    BATCH,
    MERGING,
    Running,
    ask,
    identity,
    onnx_model,
    start_triton,
    tensors,
    through,
)

TYPES = {
    "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32, "INT64": TensorProto.INT64, "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE, "BOOL": TensorProto.BOOL,
}  # fmt: skip
DAMAGED = 60
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
        identity(
            root / f"type_{name.lower()}", kind, ["n", 3], SIZE + MERGING + through(f"{name} [3]")
        )
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
    weights = helper.make_tensor(
        "w", TensorProto.FLOAT, [64, 96], np.random.default_rng(0).random(64 * 96)
    )
    onnx_model(
        root / "product",
        [
            helper.make_node("Constant", [], ["w"], value=weights),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["n", 64])],
        [("y", TensorProto.FLOAT, ["n", 96])],
        SIZE
        + tensors("input", x="FP32 [64]")
        + tensors("output", y="FP32 [96]")
        + "instance_group { count: 2 kind: KIND_CPU }\n",
    )


def write_damaged(root: Path, count: int, seed: int) -> None:
    """ONNX files with bytes changed, cut off or put in twice."""
    random = Random(seed)
    for number in range(count):
        folder = root / f"damaged_{number:04}"
        identity(folder, TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]"))
        file = folder / "1" / "model.onnx"
        data = bytearray(file.read_bytes())
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(data))
            kind = random.randrange(3)
            if kind == 0:
                data[place] = random.randrange(256)
            elif kind == 1:
                del data[place : place + random.randint(1, 8)]
            else:
                data[place:place] = data[place : place + random.randint(1, 8)]
        file.write_bytes(data)


@pytest.fixture(scope="module")
def triton(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton with the networks of this file and damaged ones."""
    root = tmp_path_factory.mktemp("repository")
    write_networks(root)
    write_damaged(root, DAMAGED, 0)
    with start_triton(root, tmp_path_factory.mktemp("server"), native) as running:
        yield running


@pytest.fixture
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


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
    """Two sequences at once add up what each of them sends."""
    totals = {1: np.zeros(2, np.float32), 2: np.zeros(2, np.float32)}
    for number in range(4):
        for sequence, total in totals.items():
            x = np.full((1, 2), sequence * (number + 1), np.float32)
            total += x[0]
            tensor = grpc.InferInput("x", [1, 2], "FP32")
            tensor.set_data_from_numpy(x)
            result = client.infer(
                "sum", [tensor], sequence_id=sequence, sequence_start=number == 0,
                sequence_end=number == 3,
            )  # fmt: skip
            np.testing.assert_array_equal(result.as_numpy("y"), total[None])


def test_answers_are_the_engines_own(client: Client, triton: Running) -> None:
    """Bit for bit what ONNX Runtime gives in process, from either of two instances."""
    file = next(Path(triton.log).parent.parent.glob("repository*/product/1/model.onnx"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    for count in (1, 3, 1, BATCH):
        x = np.random.default_rng(count).random((count, 64), np.float32)
        expected = session.run(["y"], {"x": x})[0]
        assert ask(client, "product", x=x)["y"].tobytes() == expected.tobytes()


def test_damaged_files_are_refused_and_the_others_served(client: Client) -> None:
    """Each damaged network loads or is named with its reason; the server is the one that was started."""
    index = {entry.name: entry for entry in client.get_model_repository_index().models}
    damaged = [entry for name, entry in index.items() if name.startswith("damaged")]
    assert len(damaged) == DAMAGED
    refused = [entry for entry in damaged if entry.state != "READY"]
    assert len(refused) > DAMAGED / 3
    assert all(f"model '{entry.name}'" in entry.reason for entry in refused)
    assert index["type_fp32"].state == "READY"


def test_odd_requests_get_an_error_each(client: Client, triton: Running) -> None:
    """Wrong types, ranks, sizes, bytes and names: an answer or an error for each, and the server goes on."""
    random, names = Random(0), [f"type_{name.lower()}" for name in TYPES]
    answered = refused = 0
    for _ in range(300):
        shape = [random.choice([0, 1, 2, 3, BATCH, BATCH + 1]) for _ in range(random.randint(1, 3))]
        kind = random.choice([np.float32, np.float16, np.int64, np.uint8, np.bool_])
        array = np.zeros(shape, kind)
        tensor = grpc.InferInput(random.choice("xxxxz"), shape, np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        if random.random() < 0.3:
            tensor._raw_content = random.randbytes(random.randint(0, 40))
        try:
            client.infer(random.choice(names), [tensor], client_timeout=30)
            answered += 1
        except InferenceServerException:
            refused += 1
    assert (answered + refused, triton.process.poll()) == (300, None)
    assert refused > 200
    assert client.is_server_ready()


def test_an_engine_that_is_none_is_named(native: Path, tmp_path: Path) -> None:
    """Its models do not load and say why; what needs it not is served."""
    identity(
        tmp_path / "repository" / "one", TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]")
    )
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(
            start_triton(
                tmp_path / "repository",
                tmp_path,
                native,
                ["--backend-config=onnxruntime,library=/nonexistent.so"],
            )
        )
        client = stack.enter_context(grpc.InferenceServerClient(running.address))
        (entry,) = client.get_model_repository_index().models
        assert entry.state == "UNAVAILABLE"
        assert "onnxruntime backend: /nonexistent.so: " in entry.reason
