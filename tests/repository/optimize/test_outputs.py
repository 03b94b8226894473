"""Outputs whose shapes the file names wrongly, or not at all: the engine's own decide, and what a run gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import built
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import open_session

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
WHOLE = "serving: {max_batch_size: 0}\n"
RELU = [helper.make_node("Relu", ["x"], ["y"])]
HIDDEN = [
    # The pattern of the reshape follows from values: nothing can be inferred.
    helper.make_node("Cast", ["x"], ["whole"], to=INT),
    helper.make_node("Mul", ["whole", "zero"], ["zeros"]),
    helper.make_node("ReduceMax", ["zeros"], ["none"], keepdims=0),
    helper.make_node("Add", ["pattern", "none"], ["to"]),
    helper.make_node("Reshape", ["x", "to"], ["y"]),
]


def constants(pattern: Sequence[int] = (-1, 5)) -> list[Any]:
    """The constants of `HIDDEN`."""
    return [
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array(pattern, np.int64), "pattern"),
    ]


def file_of(
    nodes: Sequence[Any],
    given: list[Any],
    out: list[Any] | None,
    weights: Sequence[Any] = (),
    inner: Sequence[Any] = (),
) -> bytes:
    """A file from x to y whose output is said to have the shape `out`."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", FLOAT, given)],
        [helper.make_tensor_value_info("y", FLOAT, out)],
        list(weights),
        value_info=list(inner),
    )
    opsets = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


CASES: dict[str, tuple[bytes, str, tuple[int, ...]]] = {
    "named and inferred": (file_of(RELU, [1, 1, 8], [1, "D", 8]), WHOLE, (1, 1, 8)),
    "free and inferred": (file_of(RELU, ["N", 5], ["N", None]), "", (5,)),
    "another size": (file_of(RELU, ["N", 5], ["N", 4]), "", (5,)),
    "another rank": (file_of(RELU, ["N", 5], ["N", 5, 1]), "", (5,)),
    "hidden, another size": (file_of(HIDDEN, ["N", 5], ["N", 4], constants()), "", (5,)),
    "hidden, another rank": (file_of(HIDDEN, ["N", 5], ["N", 5, 1], constants()), "", (5,)),
    "hidden, right": (file_of(HIDDEN, ["N", 5], ["N", 5], constants()), "", (5,)),
    "no shape": (file_of(RELU, ["N", 5], None), "", (5,)),
    "a batch of one": (file_of(RELU, ["N", 5], [1, 5]), WHOLE, (-1, 5)),
    "an inner tensor of one": (
        file_of(
            [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Abs", ["t"], ["y"])],
            ["N", 5],
            ["N", 5],
            inner=[helper.make_tensor_value_info("t", FLOAT, [1, 5])],
        ),
        "",
        (5,),
    ),
    "folded on loading": (
        file_of(
            [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["y"])],
            ["N", 6],
            ["N", "Q"],
            [
                numpy_helper.from_array(np.array([-1, 1], np.int64), "a"),
                numpy_helper.from_array(np.array([0, 5], np.int64), "b"),
            ],
        ),
        "",
        (6,),
    ),
    "a scalar": (file_of([helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)], ["N", 5], []), WHOLE, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_engine_s_shapes_are_the_artifact_s(write_model: WriteModel, cache: BuildCache, case: str) -> None:
    """The signature, from which the configuration is made, and the session of the file say the same."""
    content, serving, shape = CASES[case]
    text = f"name: net\nnetwork: {{onnx: m.onnx}}\n{serving}"
    artifact = built(write_model(text, m__onnx=content), cache)
    [output] = artifact.signature.outputs
    assert output.shape == shape
    for optimized in (True, False):
        [served] = open_session(artifact.folder / "model.onnx", "test", optimized).get_outputs()
        sizes = tuple(size if isinstance(size, int) else -1 for size in served.shape)
        assert sizes[int(artifact.signature.batched) :] == shape


def test_a_file_that_says_what_is_true_is_copied_as_it_is(write_model: WriteModel, cache: BuildCache) -> None:
    """Byte for byte, names of axes included."""
    content = file_of(RELU, ["batch", "length"], ["batch", "length"])
    spec = write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=content)
    artifact = built(spec, cache)
    assert (artifact.folder / "model.onnx").read_bytes() == content
    assert artifact.signature.outputs[0].axes == ("length",)


def test_weights_in_other_files_stay_there(write_model: WriteModel, cache: BuildCache) -> None:
    """A correction writes the graph alone."""
    model = onnx.load_model_from_string(file_of([helper.make_node("MatMul", ["x", "w"], ["y"])], ["N", 5], ["N", "D"]))
    weight = model.graph.initializer.add(name="w", data_type=FLOAT, dims=[5, 3])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    data = np.ones((5, 3), np.float32).tobytes()
    spec = write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=model.SerializeToString(), w__bin=data)
    artifact = built(spec, cache)
    assert artifact.signature.outputs[0].shape == (3,)
    assert set(artifact.files) == {"model.onnx", "w.bin"}
    assert (artifact.folder / "w.bin").read_bytes() == data
