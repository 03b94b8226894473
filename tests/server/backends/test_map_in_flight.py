"""`map:` on a real server while something happens to its calls: callers that give up, models that are loaded again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.repository.optimize.linear import linear
from tests.server.backends.test_graphs import join
from tests.waiting import PATIENCE_S, eventually, standstill
from tritonkit import AsyncClient, Client
from tritonkit.client.reload import reload_models
from tritonkit.errors import ClientError, DeadlineExceeded
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import ServeEvent, serve

CALLERS = 8
CALL = 2
"""Items of a call."""
IN_FLIGHT = 4
GATES = 1_000_000
"""Numbers from here on wait for a file of their name."""
PICKY = f"""name: picky
network:
  python: picky.py
  inputs: {{x: {{dtype: FP64, shape: [1]}}}}
  outputs: {{y: {{dtype: FP64, shape: [1]}}}}
serving:
  max_batch_size: {CALL}
  independent_items: true
  model_warmup: off
  instance_group: [{{count: 3}}]
"""
CODE = """import os
import time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y = -x. The number of each item is kept in a file before it is computed.
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        for number in x[:, 0].astype(int).tolist():
            with open(FOLDER / "seen", "a") as seen:
                seen.write(f"{number}\\n")
            while number >= GATES and not (FOLDER / str(number)).exists():
                time.sleep(0.01)
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", -x)])
"""
FLOW = f"""name: flow
pipeline:
  - name: each
    map: {{over: [x], max_in_flight: {IN_FLIGHT}, pipeline: [{{model: picky}}]}}
"""
FAN = """name: fan
pipeline:
  - name: each
    map:
      over: [x]
      max_in_flight: 16
      pipeline:
        - {name: first, network: {onnx: first.onnx}, outputs: {y: z}, serving: {instance_group: [{count: 2}]}}
        - {name: one, network: {onnx: second.onnx}, inputs: {x: z}, outputs: {y: left}}
        - name: two
          network: {onnx: third.onnx}
          inputs: {x: z}
          outputs: {y: right}
          serving: {max_batch_size: 4, instance_group: [{count: 2}]}
        - {name: join, network: {onnx: join.onnx}, inputs: {a: left, b: right}}
      ensemble: {outputs: [joined, left]}
    serving: {instance_group: [{count: 3}], max_batch_size: 4}
  - name: again
    map: {over: [left], pipeline: [{name: net, network: {onnx: second.onnx}}]}
    inputs: {x: left}
ensemble: {outputs: [joined, y]}
"""
CROPS = """name: crops
pipeline:
  - {step: cut, serving: {max_batch_size: 1}}
  - name: sums
    map: {over: [crops], max_in_flight: 8, pipeline: [{name: net, network: {onnx: net.onnx}}]}
    inputs: {x: crops}
ensemble: {outputs: [y]}
"""
STEP = """description: a number of large items
inputs: {sizes: {dtype: INT32, shape: [2]}}
outputs: {crops: {dtype: FP32, shape: [-1, 512, 512]}}
"""
CUT = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # sizes has the number of items, and the number that fills the first; the next one's is one larger.
    def execute(self, requests):
        answers = []
        for request in requests:
            [[count, first]] = pb_utils.get_input_tensor_by_name(request, "sizes").as_numpy().tolist()
            numbers = np.arange(first, first + count, dtype=np.float32)
            crops = np.broadcast_to(numbers[None, :, None, None], (1, count, 512, 512)).copy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("crops", crops)]))
        return answers
"""


@dataclass
class Running:
    """A server with the pipelines, the folder of the gates, and what happened to the server."""

    repository: Path
    address: str
    admin_key: str
    gates: Path
    client: Client
    events: list[ServeEvent] = field(default_factory=list)
    used: int = 0

    def gate(self) -> int:
        """A number that nobody has used, whose item waits until `open`."""
        self.used += 1
        return GATES + 1000 * self.used

    def open(self, gate: int) -> None:
        """Let the item with this number go on."""
        (self.gates / str(gate)).touch()

    def seen(self) -> Counter[int]:
        """Each number that the model had, and how often."""
        file = self.gates / "seen"
        return Counter(map(int, file.read_text().split())) if file.exists() else Counter()

    def await_item(self, number: int) -> None:
        """Wait until the model has begun with this number."""
        eventually(lambda: number in self.seen(), "an item with the model")

    def flow(self, *numbers: int, **options: Any) -> list[float]:
        """The answers to one request with these items."""
        reply = self.client.model("flow").predict(x=np.float64([numbers]), **options)
        [answers] = reply["y"].tolist()
        return list(answers)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with maps over Python of a user's own, over a graph, and over large items."""
    root = tmp_path_factory.mktemp("maps")
    gates = root / "gates"
    gates.mkdir()
    draw = np.random.default_rng(0)
    networks = {
        f"fan/{name}.onnx": linear(draw.standard_normal((16, 16)).astype(np.float32) / 4, [16])
        for name in ("first", "second", "third")
    }
    code = f"from pathlib import Path\nGATES = {GATES}\nFOLDER = Path({str(gates)!r})\n{CODE}"
    files: dict[str, str | bytes] = {
        **networks,
        "picky/picky.py": code,
        "fan/join.onnx": join(16),
        "crops/net.onnx": linear(np.full((2, 512 * 512), 1 / 512**2, np.float32), [512, 512]),
        "crops/steps/cut/step.yaml": STEP,
        "crops/steps/cut/model.py": CUT,
    }
    files |= {f"{text.split()[1]}/model.yaml": text for text in (PICKY, FLOW, FAN, CROPS)}
    for path, content in files.items():
        file = root / "models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    repository = build_repository(root, cores=2).path
    events: list[ServeEvent] = []
    names = ["flow", "fan", "crops"]
    with (
        serve(repository, root=root, models=names, grpc_port=0, metrics_port=0, on_event=events.append) as end,
        Client(end.grpc, admin_key=end.admin_key, timeout_s=PATIENCE_S, retry=None) as client,
    ):
        yield Running(repository, end.grpc, end.admin_key, gates, client, events)


def by_network(server: Running, model: str, **inputs: Any) -> Any:
    """The answers of a published network by ONNX Runtime."""
    file = server.repository / model / "1" / "model.onnx"
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, inputs)[0]


def test_a_graph_runs_for_every_item(server: Running, random: np.random.Generator) -> None:
    """Networks that fan out and join, with several instances of everything, and a second map behind the first: each of
    eight callers gets the answers to its own items, whether none, one or many."""
    asked = [
        random.standard_normal((1 + n % 2, int(random.choice([0, 1, 2, 7, 40])), 16)).astype(np.float32)
        for n in range(96)
    ]
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda x: server.client.model("fan").predict(x=x).outputs, asked))
    for x, answer in zip(asked, answers, strict=True):
        assert answer["joined"].shape == answer["y"].shape == x.shape
        if not x.size:
            continue
        z = by_network(server, "fan_each_item_first", x=x.reshape(-1, 16))
        left, right = (by_network(server, f"fan_each_item_{name}", x=z) for name in ("one", "two"))
        joined = by_network(server, "fan_each_item_join", a=left, b=right)
        np.testing.assert_allclose(answer["joined"].reshape(-1, 16), joined, rtol=1e-3, atol=1e-5)
        again = by_network(server, "fan_again_item_net", x=left)
        np.testing.assert_allclose(answer["y"].reshape(-1, 16), again, rtol=1e-3, atol=1e-5)


def test_a_deadline_is_its_request_s_alone(server: Running) -> None:
    """A caller whose items take too long has an error in time; others are answered meanwhile, and nothing stays
    taken: as many items as before are in flight afterwards."""
    gate = server.gate()
    try:
        with pytest.raises(DeadlineExceeded):
            server.flow(gate, 1, 2, timeout_s=3.0)
        assert server.flow(*range(9)) == [-n for n in range(9)]
    finally:
        server.open(gate)
    assert [server.flow(*range(n, n + 30)) for n in range(4)] == [[-k for k in range(n, n + 30)] for n in range(4)]


def test_a_caller_who_gives_up_ends_the_calls(server: Running) -> None:
    """Items of the map's own caller that are not with the model yet never come to it."""
    gate = server.gate()
    items = range(gate, gate + 100)

    async def program() -> None:
        async with AsyncClient(server.address, timeout_s=PATIENCE_S) as client:
            each = await client.model("flow_each")
            task = each.submit(x=np.float64([items]))
            await asyncio.to_thread(server.await_item, gate)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(program())
    for number in items:  # one after the other, so that the server has time to learn of it
        server.open(number)
        standstill(lambda: len(server.seen()))
        if number + IN_FLIGHT not in server.seen():
            break
    for number in items:
        server.open(number)
    assert server.flow(5, 6, 7) == [-5, -6, -7]
    standstill(lambda: len(server.seen()))
    assert items[-1] not in server.seen()


def test_a_caller_of_the_pipeline_who_gives_up_disturbs_nobody(server: Running) -> None:
    """The others go on, and get their own answers."""
    gate = server.gate()

    async def program() -> None:
        async with AsyncClient(server.address, timeout_s=PATIENCE_S) as client:
            flow = await client.model("flow")
            task = flow.submit(x=np.float64([[gate, *range(20)]]))
            await asyncio.to_thread(server.await_item, gate)
            others = [flow.submit(x=np.float64([range(n, n + n % 7)])) for n in range(40)]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            server.open(gate)
            for n, other in enumerate(others):
                assert (await other)["y"].tolist() == [[-k for k in range(n, n + n % 7)]]

    asyncio.run(program())


def test_a_callee_that_is_loaded_again(server: Running) -> None:
    """The calls that are with it are answered by the old one, and those after them by the new one."""
    gate = server.gate()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(server.flow, gate, *range(20))
        try:
            server.await_item(gate)
            file = server.repository / "picky" / "config.pbtxt"
            file.touch()
            loading = pool.submit(server.client.load, "picky")
            eventually(lambda: loading.done() or server.flow(1) == [-1], "an answer meanwhile")
        finally:
            server.open(gate)
        assert asked.result() == [-gate, *(-n for n in range(20))]
        loading.result()
    assert server.flow(*range(9)) == [-n for n in range(9)]


def test_a_callee_that_is_unloaded(server: Running) -> None:
    """The request gets an error that names it, or all of its answers; the others get theirs once it is back."""
    gate = server.gate()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(server.flow, gate, *range(40))
        try:
            server.await_item(gate)
            unload(server, "picky")
        finally:
            server.open(gate)
        assert_whole(asked, [-gate, *(-n for n in range(40))])
    with pytest.raises(ClientError):
        server.flow(1)
    reloaded = reload_models(server.client, ["flow"])
    assert {"flow", "flow_each_item"} <= {model.model for model in reloaded}
    assert server.flow(*range(9)) == [-n for n in range(9)]


def unload(server: Running, model: str) -> None:
    """Take a model from the server, as its owner can."""
    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.RepositoryModelUnloadRequest(model_name=model)
        stub.RepositoryModelUnload(request, metadata=[("triton-grpc-protocol-admin-key", server.admin_key)])


def assert_whole(asked: Future[list[float]], expected: list[float]) -> None:
    """An error that names the called model, or the right answer."""
    error = asked.exception()
    if error is None:
        assert asked.result() == expected
    else:
        assert isinstance(error, ClientError)
        assert "flow_each_item, item" in str(error)


def test_more_than_a_message_holds(server: Running) -> None:
    """The items of a request are larger together than what is in flight at a time and than the answer; eight callers
    get their own sums."""
    with ThreadPoolExecutor(CALLERS) as pool:
        sizes = [(1 + 20 * (n % 3), n) for n in range(24)]
        answers = list(pool.map(lambda one: server.client.model("crops").predict(sizes=np.int32([one]))["y"], sizes))
    for (count, first), answer in zip(sizes, answers, strict=True):
        np.testing.assert_allclose(answer[0, :, 0], np.arange(first, first + count), rtol=1e-4)
    assert not [event for event in server.events if event.kind in ("stub_grown", "stub_died")]
