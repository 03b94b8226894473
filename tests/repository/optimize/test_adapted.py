"""ONNX files with the sizes of their specs: one item without a batch axis, and fixed sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.conftest import WriteModel
from tests.repository.export.graphs import FLOAT, node, onnx_bytes
from tests.repository.optimize.small_specs import RELU, built, onnx_file
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.inspection import declared_signature

ITEM = "name: net\nnetwork:\n  onnx: m.onnx\n  inputs: {x: {dtype: FP32, shape: [4]}}\n"
CUT = onnx_bytes(
    [node("Reshape", ["x", "two"], ["r"]), node("Relu", ["r"], ["y"])],
    [("x", FLOAT, [1, 4])],
    [("y", FLOAT, [1, 2, 2])],
    {"two": np.array([1, 2, -1], np.int64)},
)
"""One item in another shape, which is a constant of the file: two items run, and become one."""


def dims(artifact: Artifact) -> list[list[int]]:
    """Sizes of the artifact's first input and output, 0 where they are free."""
    graph = onnx.load(artifact.folder / "model.onnx").graph
    return [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (graph.input[0], graph.output[0])]


def test_a_file_for_one_item_batches_where_that_is_proven(write_model: WriteModel, cache: BuildCache) -> None:
    """The size 1 in front was the exporter's choice, and the spec's shape leaves it out."""
    spec = write_model(ITEM, m__onnx=onnx_file(RELU, [1, 4], [1, 4]))
    artifact = built(spec, cache)
    assert artifact.signature.batched
    assert artifact.independence is not None
    assert artifact.independence.state == "proven"
    assert dims(artifact) == [[0, 4], [0, 4]]
    assert declared_signature(spec).batched


def test_a_file_that_holds_the_one_item_in_constants_gets_items_one_by_one(
    write_model: WriteModel, cache: BuildCache
) -> None:
    """A request has the shape of an item, and the file is given the axis that it wants."""
    artifact = built(write_model(ITEM, m__onnx=CUT), cache)
    assert artifact.signature.single
    assert [tensor.shape for tensor in (*artifact.signature.inputs, *artifact.signature.outputs)] == [(4,), (2, 2)]
    assert artifact.independence is not None
    assert artifact.independence.state == "fixed"
    assert artifact.independence.seen.startswith("the file was exported for one item")
    assert dims(artifact) == [[1, 4], [1, 2, 2]]
    session = open_session(artifact.folder / "model.onnx", "net")
    answer = run_session(session, {"x": np.float32([[1, -2, 3, -4]])}, "net")["y"]
    assert answer.tolist() == [[[1, 0], [3, 0]]]


@pytest.mark.parametrize("serving", ["max_batch_size: 8", "dynamic_batching: {}"])
def test_a_demand_for_batches_of_such_a_file_fails(write_model: WriteModel, cache: BuildCache, serving: str) -> None:
    """It says what to export."""
    with pytest.raises(BuildError) as caught:
        built(write_model(ITEM + f"serving: {{{serving}}}\n", m__onnx=CUT), cache)
    assert "the network has no batch axis" in caught.value.found
    assert caught.value.todo.startswith("export with a dynamic batch axis in front")


def test_whole_rows_of_a_file_for_one_item_stay(write_model: WriteModel, cache: BuildCache) -> None:
    """A spec that has the file's own shapes, and one without shapes, speak of the file's rows."""
    whole = ITEM.replace("[4]", "[1, 4]")
    for text in (whole, "name: net\nnetwork: {onnx: m.onnx}\n"):
        signature = built(write_model(text, m__onnx=CUT), cache).signature
        assert not signature.batched
        assert not signature.single
        assert signature.inputs[0].shape == (1, 4)


def test_max_batch_size_0_is_named_where_it_keeps_the_rows(write_model: WriteModel, cache: BuildCache) -> None:
    """`tritonkit new` writes it for such a file, before anybody thinks of a pipeline."""
    with pytest.raises(SpecError) as caught:
        built(write_model(ITEM + "serving: {max_batch_size: 0}\n", m__onnx=CUT), cache)
    assert caught.value.todo.startswith("leave serving.max_batch_size out")


def test_sizes_that_the_spec_fixes_are_those_of_the_outputs(write_model: WriteModel, cache: BuildCache) -> None:
    """Steps behind the network then know what they get, for their memory and their warm-up."""
    pooled = onnx_bytes(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        [("x", FLOAT, ["batch", 3, "height", "width"])],
        [("y", FLOAT, ["batch", 3, "half", "other"])],
    )
    text = ITEM.replace("[4]", "[3, 8, 32]")
    artifact = built(write_model(text, m__onnx=pooled), cache)
    assert artifact.signature.outputs[0].shape == (3, 4, 16)
    assert dims(artifact) == [[0, 3, 8, 32], [0, 3, 4, 16]]
    unsaid = built(write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=pooled), cache)
    assert unsaid.signature.outputs[0].shape == (3, -1, -1)


def test_sizes_that_only_a_run_shows_are_those_of_the_outputs(write_model: WriteModel, cache: BuildCache) -> None:
    """Exports of detectors join all cells of several grids by an axis of size -1, which engines cannot infer."""
    joined = onnx_bytes(
        [
            node("Shape", ["x"], ["sizes"]),
            node("Gather", ["sizes", "zero"], ["batch"]),
            node("Concat", ["batch", "three", "rest"], ["shape"], axis=0),
            node("Reshape", ["x", "shape"], ["y"]),
        ],
        [("x", FLOAT, ["batch", 3, "height", "width"])],
        [("y", FLOAT, ["batch", 3, "cells"])],
        {"zero": np.array([0], np.int64), "three": np.array([3], np.int64), "rest": np.array([-1], np.int64)},
    )
    artifact = built(write_model(ITEM.replace("[4]", "[3, 8, 32]"), m__onnx=joined), cache)
    assert artifact.signature.outputs[0].shape == (3, 256)
    assert dims(artifact) == [[0, 3, 8, 32], [0, 3, 256]]
    text = ITEM.replace("[4]", "[3, 8, width]") + "  free_axes: {width: {min: 4, max: 32}}\n"
    assert built(write_model(text, m__onnx=joined), cache).signature.outputs[0].shape == (3, -1)
