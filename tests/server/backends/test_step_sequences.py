"""A pipeline whose step and network both keep state between the requests of a sequence, with batches and instances."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper

from bench.families.kitchen import kitchen
from tests.waiting import PATIENCE_S
from tritonkit.client import Client, Model
from tritonkit.errors import InferenceError

STREAMS = 32
SPEC = """
name: sums
network:
  onnx: model.onnx
  inputs:
    input: {dtype: FP32, shape: [-1, 5]}
    h: {dtype: FP32, shape: [1]}
pipeline:
  - step: frames
    parameters: {size: 5, hop: 3, context: 2}
    outputs: {frames: input}
    serving: {instance_group: [{count: 2}]}
  - network
serving:
  max_batch_size: 8
  sequence_batching:
    max_sequence_idle: 60s
    state: [{input: h, output: hn, dtype: FP32, shape: [1]}]
"""


def running_sums() -> bytes:
    """A network that gives the sum of all frames of a stream up to each frame: [batch, frames]."""
    shapes: list[tuple[str, list[str | int]]] = [("input", ["b", "n", 5]), ("h", ["b", 1])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    shapes = [("total", ["b", "n"]), ("hn", ["b", 1])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    nodes = [
        helper.make_node("ReduceSum", ["input", "last"], ["sums"], keepdims=0),
        helper.make_node("CumSum", ["sums", "frames"], ["running"]),
        helper.make_node("Add", ["running", "h"], ["total"]),
        helper.make_node("ReduceSum", ["sums", "frames"], ["chunk"], keepdims=1),
        helper.make_node("Add", ["chunk", "h"], ["hn"]),
    ]
    axes = [helper.make_tensor(name, TensorProto.INT64, [1], [axis]) for name, axis in (("last", 2), ("frames", 1))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, axes)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def streamed(model: Model, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The answers to a stream in chunks of changing length, and the sums of its frames."""
    generator = np.random.default_rng(number)
    sound = generator.integers(0, 9, 200 + number).astype(np.float32)
    given, start = [], 0
    with model.sequence(number + 1) as stream:
        while start < len(sound):
            stop = start + int(generator.integers(3, 20))
            given.append(stream.predict(waveform=sound[None, start:stop], last=stop >= len(sound))["total"][0])
            start = stop
    padded = np.pad(sound, (2, -len(sound) % 3))
    return np.concatenate(given), sliding_window_view(padded, 5)[::3].sum(axis=1).cumsum()


def test_streams_stay_with_their_instance(tmp_path: Path) -> None:
    """The samples that the step keeps and the network's sum follow each of many streams at the same time."""
    folder = tmp_path / "models" / "sums"
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(SPEC)
    (folder / "model.onnx").write_bytes(running_sums())
    with kitchen(tmp_path) as place:
        place.command("tritonkit build sums")
        place.command("tritonkit serve &")
        with Client(place.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(STREAMS) as pool:
            model = client.model("sums")
            for given, expected in pool.map(lambda number: streamed(model, number), range(STREAMS)):
                np.testing.assert_array_equal(given, expected)
            with pytest.raises(InferenceError, match="must specify batch-size 1"), model.sequence() as stream:
                stream.predict(waveform=np.zeros((2, 3), np.float32))
