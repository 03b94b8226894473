"""Items that depend on their neighbors, in a real Triton whose repository was made elsewhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.running import tritonkit
from tests.server.models import ModelText
from tests.server.sharing import SharedServer
from tritonkit.client import Adaptive, Client
from tritonkit.serve import Endpoint

CODE = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        x = np.concatenate(given)
        y = ({work}).astype(np.float32)
        parts = np.split(y, np.cumsum([len(g) for g in given])[:-1])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", part)]) for part in parts]
"""
CONFIG = """max_batch_size: 8
input {{ name: "x" data_type: TYPE_FP32 dims: [{dims}] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [{dims}] }}
dynamic_batching {{ max_queue_delay_microseconds: 2000 }}
parameters {{ key: "tritonkit.idempotent" value {{ string_value: "true" }} }}
backend: "{backend}"
"""
WIDTH = 3
ITEMS = np.random.default_rng(0).standard_normal((64, 1, WIDTH)).astype(np.float32)


def python_model(work: str) -> ModelText:
    """A model of one line."""
    return ModelText(CONFIG.format(dims=WIDTH, backend="python"), CODE.format(work=work))


def over_time() -> bytes:
    """An LSTM as PyTorch exports it: axis 0 is time, and free."""
    chance = np.random.default_rng(1)
    shapes = {"w": (1, 4 * WIDTH, WIDTH), "r": (1, 4 * WIDTH, WIDTH)}
    weights = [
        numpy_helper.from_array(chance.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["all"], hidden_size=WIDTH),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Squeeze", ["all", "one"], ["y"]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["time", 1, WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "lstm", tensors[:1], tensors[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture(scope="module")
def server(shared: SharedServer) -> Endpoint:
    """One independent model, and one of each kind that is not."""
    lstm = CONFIG.format(dims=f"1, {WIDTH}", backend="onnxruntime").splitlines()
    models = {
        "apart": python_model("2 * x"),
        "mean": python_model("x - x.mean(0)"),
        "joined": python_model("x + len(requests)"),
        "lstm": ModelText(
            "\n".join(line for line in lstm if not line.startswith("dynamic_batching")),
            None,
            {"1/model.onnx": over_time()},
        ),
    }
    return shared.serving(models)


@pytest.mark.parametrize(
    ("model", "verdict", "sent"),
    [
        ("apart", "independent", set()),
        ("mean", "coupled", {"pairs", "8 together", "8 shuffled", "8, one replaced"}),
        # Items of one request are independent; those of requests that the server joins are not.
        ("joined", "coupled", {"256 requests of 16 callers"}),
        ("lstm", "coupled", {"pairs", "8 together", "8 shuffled", "8, one replaced"}),
    ],
)
def test_check_batching(server: Endpoint, tmp_path: Path, model: str, verdict: str, sent: set[str]) -> None:
    """The verdict, where it shows, the exit code, and what to do."""
    items = ITEMS[:8] if model == "lstm" else ITEMS[:8, 0]
    np.save(tmp_path / "items.npy", items)
    arguments = ("check-batching", model, "--input", f"x=@{tmp_path}/items.npy", "--address", server.grpc)
    done = tritonkit(*arguments, "--json")
    assert done.returncode == (verdict != "independent"), done.stderr
    facts = json.loads(done.stdout)
    assert facts["verdict"] == verdict
    assert {coupling["arrangement"] for coupling in facts["couplings"]} >= sent
    assert facts["requests_per_run"] >= 1
    if model == "joined":
        assert facts["requests_per_run"] > 1
        shown = tritonkit(*arguments).stdout
        assert "joined version 1: coupled" in shown
        assert "change: " in shown
        assert "max_batch_size: 0" in shown


def test_a_time_axis_is_not_joined_by_the_client(server: Endpoint) -> None:
    """Sixteen callers of steps [1, 1, 3]: each has the answer of its own step; whole series go as they are."""
    session = onnxruntime.InferenceSession(over_time())
    with Client(server.grpc, batching=Adaptive(max_wait_ms=20)) as client, ThreadPoolExecutor(16) as pool:
        model = client.model("lstm")
        inputs = [ITEMS[place : place + 1] for place in range(len(ITEMS))]
        inputs += [ITEMS[:5], ITEMS[5:12]]
        answers = list(pool.map(lambda x: model.predict(x=x)["y"], inputs))
        assert model.joining.state == "refused"
        assert "output y differs by" in model.joining.reason
    for x, y in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-6)
