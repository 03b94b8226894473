"""Filling up a free axis: proven at build, or refused."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import built, refused
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import plan


def padded_file(nodes: list[onnx.NodeProto], out_shape: list[int | str]) -> bytes:
    """A network of x [batch, length, 4] and mask [batch, length]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 4]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "length"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        [helper.make_tensor(n, TensorProto.INT64, [1], [i]) for n, i in (("axis", 1), ("last", 2))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


SHOWN = [
    helper.make_node("Unsqueeze", ["mask", "last"], ["shown"]),
    helper.make_node("Mul", ["x", "shown"], ["seen"]),
    helper.make_node("ReduceSum", ["seen", "axis"], ["sum"], keepdims=0),
]
MASKED_MEAN = [
    *SHOWN,
    helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=1),
    helper.make_node("Div", ["sum", "count"], ["y"]),
]
PLAIN_MEAN = [*SHOWN, helper.make_node("ReduceMean", ["x", "axis"], ["y"], keepdims=0)]
PADDED = "name: net\nnetwork: {onnx: m.onnx, free_axes: {length: {max: 32, pad: {x: 0, mask: 0}}}}\n"


def test_filling_up_is_proven_where_a_mask_hides_it(write_model: WriteModel, cache: BuildCache) -> None:
    """The verdict on items says so too; other values that fill up are proven again."""
    data = padded_file(MASKED_MEAN, ["batch", 4])
    spec = write_model(PADDED, m__onnx=data)
    independence = built(spec, cache).independence
    assert independence is not None
    assert independence.state == "proven"
    assert "filled up along length from 2 to 4" in independence.seen
    other = write_model(PADDED.replace("mask: 0", "mask: 1"), m__onnx=data)
    assert plan(other, cache).cached is None
    assert "free_axes.length.pad" in refused(other, cache, BuildError).where


def test_filling_up_that_changes_answers_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """The key, what was seen, and what helps are named; a declaration overrides it, and is recorded."""
    data = padded_file(PLAIN_MEAN, ["batch", 4])
    error = refused(write_model(PADDED, m__onnx=data), cache, BuildError)
    assert error.where.endswith("net/model.yaml network.free_axes.length.pad")
    assert error.found.startswith(
        "filling up changes answers (variant onnx-fp32): output y of an item of length 2 differs"
    )
    assert "remove pad" in error.todo
    declared = write_model(PADDED + "serving: {independent_items: true}\n", m__onnx=data)
    independence = built(declared, cache).independence
    assert independence is not None
    assert independence.state == "declared"
    built(write_model(PADDED + "serving: {max_batch_size: 0}\n", m__onnx=data), cache)
