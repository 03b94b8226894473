"""Small ONNX networks with seeded weights, and what ONNX Runtime makes of them."""

from __future__ import annotations

import collections
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import job_of

Array = np.ndarray

DATA = """
from pathlib import Path
import numpy as np
def given():
    with np.load(Path(__file__).with_name("given.npz")) as file:
        return [{"x": file[name]} for name in file.files]
"""


def folder(tmp_path: Path) -> Path:
    """An empty one."""
    made = tmp_path / "made"
    made.mkdir()
    return made


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """float32 normal numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Array],
    x: Sequence[int | str],
    y: Sequence[int | str],
    dtype: int = TensorProto.FLOAT,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A network from x to FP32 y."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", dtype, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def residual() -> onnx.ModelProto:
    """x [batch, 3, 8, 8] -> two convolutions around a sum, pooling, a linear layer -> y [batch, 5]."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], "relu1"),
        node("Conv", ["r1", "w2", "b2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r1"], ["sum"], "add"),
        node("Relu", ["sum"], ["r2"], "relu2"),
        node("MaxPool", ["r2"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("Gemm", ["f", "w3", "b3"], ["y"], "last", transB=1),
    ]
    weights = {
        "w1": random(8, 3, 3, 3, seed=1, scale=0.3),
        "b1": random(8, seed=2, scale=0.1),
        "w2": random(8, 8, 3, 3, seed=3, scale=0.2),
        "b2": random(8, seed=4, scale=0.1),
        "w3": random(5, 128, seed=5, scale=0.1),
        "b3": random(5, seed=6),
    }
    return model(nodes, weights, ["batch", 3, 8, 8], ["batch", 5])


def perceptron(width: int = 32) -> onnx.ModelProto:
    """x [batch, width] -> MatMul, Relu, MatMul -> y [batch, width]."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["m1"], "first"),
        node("Relu", ["m1"], ["r"], "relu"),
        node("MatMul", ["r", "w2"], ["y"], "second"),
    ]
    weights = {"w1": random(width, width, seed=1, scale=0.2), "w2": random(width, width, seed=2, scale=0.2)}
    return model(nodes, weights, ["batch", width], ["batch", width])


def words() -> onnx.ModelProto:
    """x [batch, length], indices -> rows of a table [100, 64] and a MatMul -> y [batch, length, 64]."""
    node = helper.make_node
    nodes = [node("Gather", ["table", "x"], ["rows"], "lookup"), node("MatMul", ["rows", "w"], ["y"], "product")]
    table = random(100, 64, seed=1) * np.logspace(-2, 2, 100, dtype=np.float32)[:, None]
    weights = {"table": table, "w": random(64, 64, seed=2, scale=0.1)}
    return model(nodes, weights, ["batch", "length"], ["batch", "length", 64], TensorProto.INT64)


def run(network: onnx.ModelProto | Path, x: Array) -> Array:
    """The output y by ONNX Runtime."""
    given = network if isinstance(network, Path) else network.SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    output: Array = ort.InferenceSession(given, options, ["CPUExecutionProvider"]).run(["y"], {"x": x})[0]
    return output


def kinds(network: onnx.ModelProto, folder: Path) -> collections.Counter[str]:
    """The operators that ONNX Runtime runs: those of its optimized graph."""
    file = folder / "optimized.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(file)
    ort.InferenceSession(network.SerializeToString(), options, ["CPUExecutionProvider"])
    return collections.Counter(node.op_type for node in onnx.load(file).graph.node)


def cosine(a: Array, b: Array) -> float:
    """Cosine of two arrays taken as vectors."""
    a, b = a.ravel().astype(float), b.ravel().astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def make_job(
    write_model: WriteModel,
    network: onnx.ModelProto,
    batches: Sequence[Array],
    more: str = "",
    optimize: str = "{calibration: data:given}",
) -> Job:
    """A real job for a network, whose calibration data are `batches`."""
    spec_text = f"name: net\nnetwork: {{onnx: net.onnx}}\noptimize: {optimize}\n{more}"
    file = io.BytesIO()
    np.savez(file, *batches)
    # Names with two dots: `write_model` makes a dot of each pair of underscores.
    spec = write_model(spec_text, net__onnx=network.SerializeToString(), data__py=DATA, given__npz=file.getvalue())
    return job_of(spec, BuildCache(spec.folder.parent.parent / "cache"))


MakeNet = Callable[[], onnx.ModelProto]


def attributes(node: Any) -> set[str]:
    """Names of a node's attributes."""
    return {attribute.name for attribute in node.attribute}
