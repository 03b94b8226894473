"""Pipelines of several networks on a real server: a diamond with a branch in INT8, and an encoder of two pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.repository.optimize.linear import linear
from tritonkit import Client
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

CALLERS = 16
ENCODER = "name: encoder\nnetwork: {onnx: encoder.onnx}\nserving: {max_batch_size: 8}\n"
DIAMOND = """name: diamond
pipeline:
  - {model: encoder, outputs: {y: vector}}
  - name: coarse
    network: {onnx: head.onnx}
    inputs: {x: vector}
    outputs: {y: left}
    serving: {variant: onnx-int8-dynamic}
  - {name: fine, network: {onnx: head.onnx}, inputs: {x: vector}, outputs: {y: right}}
  - {name: join, network: {onnx: join.onnx}, inputs: {a: left, b: right}}
ensemble: {outputs: [vector, left, joined]}
"""
TWICE = """name: twice
pipeline:
  - {model: encoder, name: query, inputs: {x: q}, outputs: {y: left}}
  - {model: encoder, name: item, inputs: {x: i}, outputs: {y: right}}
  - {name: join, network: {onnx: join.onnx}, inputs: {a: left, b: right}}
ensemble: {inputs: [q, i]}
"""
OUTER = "name: outer\npipeline: [{model: twice, outputs: {joined: x}}, {name: head, network: {onnx: head.onnx}}]\n" + (
    "ensemble: {inputs: [q, i]}\n"
)


def join(size: int) -> bytes:
    """joined = a - 2 b."""
    shape = ["batch", size]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("a", "b", "joined")]
    nodes = [helper.make_node("Mul", ["b", "two"], ["double"]), helper.make_node("Sub", ["a", "double"], ["joined"])]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], [numpy_helper.from_array(np.float32([2]), "two")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published models of four pipelines, of which one is in another."""
    random = np.random.default_rng(0)
    weights = {"encoder": (32, 24), "head": (32, 32)}
    files = {
        name: linear(random.standard_normal(size).astype(np.float32), [size[1]]) for name, size in weights.items()
    } | {"join": join(32)}
    root = tmp_path_factory.mktemp("graphs")
    for text in (ENCODER, DIAMOND, TWICE, OUTER):
        folder = root / "models" / text.split()[1]
        folder.mkdir(parents=True)
        (folder / "model.yaml").write_text(text)
        for name, content in files.items():
            (folder / f"{name}.onnx").write_bytes(content)
    return build_repository(root, cores=2).path


@pytest.fixture(scope="module")
def client(repository: Path) -> Iterator[Client]:
    """A client of a server that was told the outermost pipelines alone."""
    names = ("diamond", "outer")
    with (
        serve(repository, root=repository.parent, models=names, grpc_port=0, metrics_port=0) as endpoint,
        Client(endpoint.grpc) as made,
    ):
        yield made


def run(repository: Path, model: str, **inputs: Any) -> Any:
    """The answer of a published network by ONNX Runtime."""
    file = repository / model / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def ask(client: Client, model: str, items: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """The answers to these items from 16 callers at the same time."""
    with ThreadPoolExecutor(CALLERS) as pool:
        return [reply.outputs for reply in pool.map(lambda item: client.model(model).predict(inputs=item), items)]


def vectors(random: np.random.Generator, count: int) -> list[Any]:
    """Requests of one to three items."""
    return [random.standard_normal((1 + n % 3, 24)).astype(np.float32) for n in range(count)]


def test_a_diamond_gives_onnx_runtimes_answers(repository: Path, client: Client, random: np.random.Generator) -> None:
    """One branch in INT8, the other in FP32; a tensor that a part takes is an answer, too."""
    items = vectors(random, 64)
    for x, reply in zip(items, ask(client, "diamond", [{"x": x} for x in items]), strict=True):
        vector = run(repository, "encoder", x=x)
        left, right = (run(repository, f"diamond_{name}", x=vector) for name in ("coarse", "fine"))
        joined = run(repository, "diamond_join", a=left, b=right)
        assert reply.keys() == {"vector", "left", "joined"}
        for name, expected in {"vector": vector, "left": left, "joined": joined}.items():
            np.testing.assert_allclose(reply[name], expected, rtol=1e-4, atol=1e-4)
        # INT8 differs from FP32, and not by much.
        assert 1e-4 < np.abs(left - right).max() / np.abs(right).max() < 0.05


def test_an_encoder_that_is_shared(repository: Path, client: Client, random: np.random.Generator) -> None:
    """Twice in a pipeline, which is in another; nobody but the pipelines was told to the server."""
    pairs = list(zip(vectors(random, 48), vectors(random, 48), strict=True))
    for (q, i), reply in zip(pairs, ask(client, "outer", [{"q": q, "i": i} for q, i in pairs]), strict=True):
        left, right = (run(repository, "encoder", x=x) for x in (q, i))
        joined = run(repository, "twice_join", a=left, b=right)
        np.testing.assert_allclose(reply["y"], run(repository, "outer_head", x=joined), rtol=1e-4, atol=1e-4)
