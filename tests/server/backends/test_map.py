"""`map:` of a pipeline on a real server: requests with different numbers of items, and calls that batch over them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.repository.optimize.linear import linear
from tests.waiting import PATIENCE_S, eventually
from tritonkit import Client
from tritonkit.errors import InferenceError
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import ServeEvent, serve

CALLERS = 16
BATCH = 8
"""Items that the network takes together."""
GATE, BAD = 1414, 1313
"""Numbers of an item that waits for a file, and of one that is refused."""
PAGE = f"""name: page
pipeline:
  - {{step: cut, serving: {{max_batch_size: 4, independent_items: true}}}}
  - name: texts
    map:
      over: [crops]
      count: count
      pipeline:
        - name: net
          network: {{onnx: net.onnx}}
          serving:
            max_batch_size: {BATCH}
            dynamic_batching: {{max_queue_delay: 300ms, preferred_batch_size: [{BATCH}]}}
        - {{step: top_k, parameters: {{labels: labels.txt}}, inputs: {{logits: y}}}}
    inputs: {{x: crops}}
    outputs: {{label: text}}
  - name: sums
    map: {{over: [crops], pipeline: [{{name: one, network: {{onnx: one.onnx}}}}]}}
    inputs: {{x: crops}}
    outputs: {{y: sum}}
ensemble: {{outputs: [count, text, score, sum]}}
"""
ODD = """name: odd
pipeline:
  - {step: cut, serving: {max_batch_size: 4, independent_items: true}}
  - name: each
    map: {over: [crops], count: count, max_in_flight: 4, pipeline: [{model: picky}]}
    inputs: {x: crops}
    serving: {instance_group: [{count: 1}]}
ensemble: {outputs: [y]}
"""
PICKY = f"""name: picky
network:
  python: picky.py
  inputs: {{x: {{dtype: FP32, shape: [2, 3]}}}}
  outputs: {{y: {{dtype: FP32, shape: [-1]}}}}
serving: {{max_batch_size: {BATCH}, independent_items: true, model_warmup: off}}
"""
NESTED = """name: nested
pipeline:
  - name: pages
    map:
      over: [x]
      pipeline: [{name: crops, map: {over: [x], pipeline: [{name: net, network: {onnx: net.onnx}}]}}]
"""
WHOLE = """name: whole
network:
  onnx: rows.onnx
  inputs: {rows: {dtype: FP32, shape: [n, 2, 3]}}
  free_axes: {n: {max: 64}}
serving: {max_batch_size: 0}
pipeline:
  - network
  - {name: each, map: {over: [crops], pipeline: [{name: net, network: {onnx: net.onnx}}]}, inputs: {x: crops}}
ensemble: {outputs: [crops, y]}
"""
LENGTHS = """name: lengths
pipeline:
  - name: each
    map:
      over: [x]
      pipeline:
        - name: net
          network:
            onnx: net.onnx
            inputs: {x: {dtype: FP32, shape: [length]}}
            free_axes: {length: {min: 1, max: 64, pad: {x: 0}}}
          serving:
            max_batch_size: 16
            dynamic_batching: {max_queue_delay: 300ms, preferred_batch_size: [16]}
"""
STEP = """description: numbers to items, padded to the most of the batch
inputs: {sizes: {dtype: INT32, shape: [2]}}
outputs: {crops: {dtype: FP32, shape: [-1, 2, 3]}, count: {dtype: INT32, shape: [1]}}
"""
CUT = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # sizes has for each row how many items it has, and the number of the first.
    def execute(self, requests):
        answers = []
        for request in requests:
            sizes = pb_utils.get_input_tensor_by_name(request, "sizes").as_numpy()
            items = np.arange(sizes[:, 0].max())
            numbers = sizes[:, 1:] + np.where(items < sizes[:, :1], items, 0)
            crops = np.broadcast_to(numbers[:, :, None, None], (*numbers.shape, 2, 3)).astype(np.float32)
            tensors = [pb_utils.Tensor("crops", crops), pb_utils.Tensor("count", sizes[:, :1].copy())]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""
CODE = """import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y has each item's number one to three times, as often as the least of the call says.
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()[:, 0, 0]
        if (x == BAD).any():
            error = pb_utils.TritonError("no such item", pb_utils.TritonError.UNAVAILABLE)
            return pb_utils.InferenceResponse(error=error)
        if (x == GATE).any():
            open(FILE + ".begun", "w").close()
        while (x == GATE).any() and not os.path.exists(FILE):
            time.sleep(0.01)
        y = np.repeat(x[:, None], 1 + int(x.min()) % 3, axis=1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", y)])
"""


def doubling() -> bytes:
    """Twice the rows, whose number is free and no batch."""
    shape = ["n", 2, 3]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("rows", "crops")]
    graph = helper.make_graph([helper.make_node("Add", ["rows", "rows"], ["crops"])], "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(made.SerializeToString())


def squares() -> bytes:
    """The sum of a row, whatever its length, and its squares."""
    shapes = {"x": ["batch", "length"], "total": ["batch", 1], "square": ["batch", "length"]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["total"], keepdims=1),
        helper.make_node("Mul", ["x", "x"], ["square"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [axis])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(made.SerializeToString())


def summing() -> bytes:
    """The sum of one item, which has no batch axis."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", [1]))
    ]
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Unsqueeze", ["s", "0"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", values[:1], values[1:], [helper.make_tensor("0", TensorProto.INT64, [1], [0])]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(made.SerializeToString())


@dataclass
class Running:
    """A server with the pipelines, and what happened to it."""

    repository: Path
    address: str
    gate: Path
    client: Client
    events: list[ServeEvent] = field(default_factory=list)

    def ask(self, model: str, *rows: tuple[int, int]) -> dict[str, np.ndarray]:
        """The answer to a request: for each row the number of its items, and the number of the first."""
        return dict(self.client.model(model).predict(sizes=np.int32(rows)).outputs)

    def sizes(self, model: str) -> dict[int, int]:
        """The number of batches of each size that a model ran."""
        stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(self.address))
        [stats] = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name=model)).model_stats
        return {batch.batch_size: batch.compute_infer.count for batch in stats.batch_stats}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with pipelines whose items go to a network, to one without batches, and to Python of a user's own."""
    root = tmp_path_factory.mktemp("mapped")
    gate = root / "gate"
    weights = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32) / 100
    files: dict[str, str | bytes] = {
        "page/net.onnx": linear(weights, [2, 3]),
        "page/one.onnx": summing(),
        "page/labels.txt": "a\nb\nc\nd\n",
        "picky/picky.py": CODE.replace("BAD", str(BAD)).replace("GATE", str(GATE)).replace("FILE", repr(str(gate))),
    }
    files |= {"nested/net.onnx": files["page/net.onnx"], "whole/net.onnx": files["page/net.onnx"]}
    files |= {"whole/rows.onnx": doubling(), "lengths/net.onnx": squares()}
    for text in (PAGE, ODD, PICKY, NESTED, WHOLE, LENGTHS):
        name = text.split()[1]
        files[f"{name}/model.yaml"] = text
        if "step: cut" in text:
            files |= {f"{name}/steps/cut/step.yaml": STEP, f"{name}/steps/cut/model.py": CUT}
    for path, content in files.items():
        file = root / "models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    repository = build_repository(root, cores=2).path
    events: list[ServeEvent] = []
    names = ["page", "odd", "nested", "whole", "lengths"]
    with (
        serve(
            repository,
            root=root,
            models=names,
            grpc_port=0,
            metrics_port=0,
            on_event=events.append,
        ) as end,
        Client(end.grpc, timeout_s=PATIENCE_S) as client,
    ):
        yield Running(repository, end.grpc, gate, client, events)


def expected(server: Running, rows: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    """The answer of a loop over the items with ONNX Runtime."""
    file = server.repository / "page_texts_item_net" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    most = max(count for count, _ in rows)
    text, score = np.full((len(rows), most), b"", object), np.zeros((len(rows), most), np.float32)
    total = np.zeros((len(rows), most), np.float32)
    for row, (count, first) in enumerate(rows):
        total[row] = 6 * first  # padding, which the second map has no count to leave out
        for item in range(count):
            [logits] = session.run(None, {"x": np.full((1, 2, 3), first + item, np.float32)})[0]
            powers = np.exp(logits - logits.max())
            text[row, item] = b"abcd"[(best := logits.argmax()) : best + 1]
            score[row, item] = powers.max() / powers.sum()
            total[row, item] = 6 * (first + item)
    return {"count": np.int32([[count] for count, _ in rows]), "text": text, "score": score, "sum": total}


def requests(random: np.random.Generator, count: int) -> list[list[tuple[int, int]]]:
    """Requests of one to three rows with no item, one, some, or more than a call takes."""
    sizes = [0, 1, 1, 2, 3, BATCH, BATCH + 1, 3 * BATCH + 1]
    return [
        [(int(random.choice(sizes)), int(random.integers(0, 300))) for _ in range(1 + number % 3)]
        for number in range(count)
    ]


def test_answers_are_those_of_a_loop(server: Running, random: np.random.Generator) -> None:
    """Texts and numbers of every item, from 16 callers at a time; nothing where a row has fewer items."""
    asked = [[(0, 0)], [(0, 0), (0, 0)], [(1, 5)], *requests(random, 40)]
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda rows: server.ask("page", *rows), asked))
    for rows, answer in zip(asked, answers, strict=True):
        wanted = expected(server, rows)
        assert answer.keys() == wanted.keys()
        assert answer["text"].shape == wanted["text"].shape
        assert answer["text"].tolist() == wanted["text"].tolist()
        np.testing.assert_allclose(answer["score"], wanted["score"], rtol=1e-4)
        np.testing.assert_array_equal(answer["sum"], wanted["sum"])


def test_batches_form_over_requests(server: Running) -> None:
    """Callers with one item each get answers out of batches of several, through both instances of the map."""
    before = server.sizes("page_texts_item_net")
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda number: server.ask("page", (1, number)), range(4 * CALLERS)))
    after = server.sizes("page_texts_item_net")
    runs = {size: count - before.get(size, 0) for size, count in after.items()}
    assert sum(size * count for size, count in runs.items()) == 4 * CALLERS
    assert max(size for size, count in runs.items() if count) > 1
    assert sum(runs.values()) < 4 * CALLERS


def test_outputs_of_a_call_differ_in_length(server: Running) -> None:
    """A call of four gives each item as many numbers as its least says; the longest of the request counts."""
    assert server.ask("odd", (3, 7))["y"].tolist() == [[[number] * 2 for number in (7, 8, 9)]]
    y = server.ask("odd", (6, 12))["y"]
    assert y.tolist() == [[[n, 0] for n in (12, 13, 14, 15)] + [[16, 16], [17, 17]]]
    assert server.ask("odd", (0, 0))["y"].shape == (1, 0, 0)


def by_network(server: Running, model: str, items: np.ndarray) -> np.ndarray:
    """The answers of a published network by ONNX Runtime."""
    file = server.repository / model / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return np.stack([session.run(None, {"x": item[None]})[0][0] for item in items])


def test_maps_in_maps(server: Running, random: np.random.Generator) -> None:
    """Each item has items of its own; the innermost network sees one of them at a time, or many together."""
    x = random.standard_normal((2, 3, 5, 2, 3)).astype(np.float32)
    y = server.client.model("nested").predict(x=x)["y"]
    expected = by_network(server, "nested_pages_item_crops_item_net", x.reshape(30, 2, 3))
    np.testing.assert_allclose(y, expected.reshape(2, 3, 5, -1), rtol=1e-4, atol=1e-6)
    assert server.client.model("nested").predict(x=x[:, :, :0])["y"].shape == (2, 3, 0, 4)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_pipeline_without_batches(server: Running, count: int, random: np.random.Generator) -> None:
    """A request is one page, and the network batches its items."""
    rows = random.standard_normal((count, 2, 3)).astype(np.float32)
    reply = server.client.model("whole").predict(rows=rows)
    np.testing.assert_allclose(reply["y"], by_network(server, "whole_each_item_net", 2 * rows), rtol=1e-4, atol=1e-6)


def test_items_of_different_lengths_share_batches(server: Running, random: np.random.Generator) -> None:
    """Requests differ in length, and the network fills them up; each gets its own length back."""
    sizes = random.integers(1, (5, 40), (4 * CALLERS, 2))
    asked = [random.integers(0, 9, (1, *size)).astype(np.float32) for size in sizes]
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda x: server.client.model("lengths").predict(x=x), asked))
    for x, answer in zip(asked, answers, strict=True):
        np.testing.assert_array_equal(answer["total"], x.sum(axis=2))
        np.testing.assert_array_equal(answer["square"], x * x)
    runs = server.sizes("lengths_each_item_net")
    assert max(runs) > sizes[:, 0].max()  # the items of one request are fewer


def test_an_error_is_its_request_s_alone(server: Running) -> None:
    """Its message names the callee and the items, and its code is the callee's; others of the batch are answered."""
    rows = [(2, 20), (1, BAD), (3, 30), (2, BAD - 1)]
    with ThreadPoolExecutor(len(rows)) as pool:
        asked = [pool.submit(server.ask, "odd", row) for row in rows * 4]
        errors = [one.exception() for one in asked]
    assert [error is None for error in errors] == [True, False, True, False] * 4
    assert isinstance(errors[1], InferenceError)
    assert errors[1].code == "UNAVAILABLE"
    assert "model 'odd_each': odd_each_item, item 0: in ensemble 'odd_each_item', no such item" in errors[1].found
    assert "odd_each_item, items 0 to 1: " in str(errors[3])


def stubs(model: str) -> list[int]:
    """The processes of a model's stubs."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"triton_python_backend_stub" in words[0] and f"/{model}/".encode() in words[1]:
            found.append(int(file.parent.name))
    return found


def test_a_map_that_dies_comes_back(server: Running) -> None:
    """The request that it had is an error, not a hang; the next one is answered by a new process."""
    [before] = [pid for pid in stubs("odd_each") if str(server.repository) in Path(f"/proc/{pid}/cmdline").read_text()]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "odd", (1, GATE))
        try:
            eventually(server.gate.with_suffix(".begun").exists, "an item with the callee")
            os.kill(before, signal.SIGKILL)
            assert "'odd_each_0_0' is not healthy" in str(asked.exception())
        finally:
            server.gate.touch()
    eventually(lambda: any(e.kind == "stub_back" and e.model == "odd_each" for e in server.events), "a new process")
    assert server.ask("odd", (1, 10))["y"].tolist() == [[[10, 10]]]


def test_large_requests_leave_no_memory_behind(server: Running) -> None:
    """More items than are in flight at a time go through; no process grew so far that its model was loaded again."""
    rows = [(3000, 0), (3000, 1)]
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: server.ask("page", *rows), range(4)):
            assert answer["text"].shape == (2, 3000)
            assert (answer["text"] != b"").all()
    assert not [event for event in server.events if event.kind == "stub_grown"]
