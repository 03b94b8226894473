"""Times of single operators, as ONNX Runtime's own profiler counts them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tritonkit.repository.optimize.runtimes import RUNTIMES

WIDTH = 1500


def two_products(folder: Path) -> Path:
    """x [batch, 1500] times a matrix, and the first 4 numbers of that times a small one."""
    random = np.random.default_rng(0)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, random.random(shape, np.float32).ravel())
        for name, shape in (("large", (WIDTH, WIDTH)), ("small", (4, 2)))
    ]
    starts, ends, axes = (
        helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("starts", 0), ("ends", 4), ("axes", 1))
    )
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"], "first"),
        helper.make_node("Slice", ["a", "starts", "ends", "axes"], ["b"], "cut"),
        helper.make_node("MatMul", ["b", "small"], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [*weights, starts, ends, axes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def test_the_large_product_takes_the_time(tmp_path: Path) -> None:
    """Every operator with its kind, milliseconds of one run, and no more in all than a run takes."""
    runner = RUNTIMES["onnxruntime"](two_products(tmp_path), 1, "test")
    batch = {"x": np.ones((32, WIDTH), np.float32)}
    runner.run(batch)
    started = time.perf_counter()
    operators = runner.profile(batch, 20)
    took_ms = (time.perf_counter() - started) * 1000
    by_name = {operator.name: operator for operator in operators}
    assert {name: operator.kind for name, operator in by_name.items()} == {
        "first": "MatMul",
        "cut": "Slice",
        "second": "MatMul",
    }
    assert by_name["first"].ms > 5 * by_name["second"].ms
    assert 0 < sum(operator.ms for operator in by_name.values()) * 20 < took_ms


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """The trace is a file for a moment, and neither in the variant's folder nor where one stands."""
    runner = RUNTIMES["onnxruntime"](two_products(tmp_path), 1, "test")
    here = {path.name for path in Path.cwd().glob("*trace*")}
    runner.profile({"x": np.ones((1, WIDTH), np.float32)}, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert {path.name for path in Path.cwd().glob("*trace*")} == here
