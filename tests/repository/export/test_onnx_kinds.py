"""Files that cannot be served, named as what they are, and files that only look as if they could not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tests.repository.export.graphs import FLOAT, INT64, node, onnx_bytes
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_facts import read_onnx
from tritonkit.repository.export.onnx_file import check_file, open_session, read_signature, run_session
from tritonkit.repository.optimize import build, plan

X, Y = ("x", FLOAT, ["N", 4]), ("y", FLOAT, ["N", 4])
BF16 = TensorProto.BFLOAT16
RELU = [node("Relu", ["x"], ["y"])]
MAPS = helper.make_sequence_type_proto(helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, [])))
OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["N", 4]))
CUT = onnx_bytes(RELU, [X], [Y])[:40]


@pytest.mark.parametrize(
    ("content", "message", "todo"),
    [
        (
            onnx_bytes(
                [node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])],
                [X],
                [helper.make_value_info("y", MAPS)],
                domains=["ai.onnx.ml"],
            ),
            "output y is a sequence of maps",
            "zipmap=False",
        ),
        (
            onnx_bytes(
                [node("SplitToSequence", ["x"], ["y"], axis=1)],
                [X],
                [helper.make_tensor_sequence_value_info("y", FLOAT, None)],
            ),
            "output y is a sequence of tensors",
            "each part as an output",
        ),
        (
            onnx_bytes(
                [node("OptionalGetElement", ["x"], ["y"])], [helper.make_value_info("x", OPTIONAL)], [Y], opset=18
            ),
            "input x is optional",
            "a plain tensor",
        ),
        (onnx_bytes(RELU, [X], [Y], ir=90), "has IR version 90, which is newer than", "ir_version"),
        (onnx_bytes(RELU, [X], [Y], opset=99), "has operator set 99 of ai.onnx", "convert_version"),
        (
            onnx_bytes([node("Mine", ["x"], ["y"], domain="my.ops")], [X], [Y], domains=["my.ops"]),
            "the custom operator my.ops.Mine",
            "network: {op_library: FILE.so}",
        ),
        (
            onnx_bytes([node("Mul", ["x", "x"], ["y"])], [("x", BF16, ["N"])], [("y", BF16, ["N"])], opset=18),
            "Could not find an implementation for Mul",
            "compute in float32",
        ),
        (onnx_bytes(RELU, [("x", FLOAT, None)], [Y]), "input x has no shape", "export it with shapes"),
        (CUT, "not a whole ONNX file", "truncated download"),
        (b"", "not a whole ONNX file", "truncated download"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS", "git lfs pull"),
        (b"<!doctype html><html>", "a web page", "download the file itself"),
        (b"PK\x03\x04 data.pkl", "a zip archive, as PyTorch's files are", "torch.onnx.export"),
        (b"\x1c\x00\x00\x00TFL3", "a TensorFlow Lite file", "tf2onnx"),
    ],
)
def test_a_file_is_named_as_what_it_is(tmp_path: Path, content: bytes, message: str, todo: str) -> None:
    """Only a file that breaks off is called a truncated download."""
    file = tmp_path / "m.onnx"
    file.write_bytes(content)
    with pytest.raises(BuildError) as caught:
        _ = check_file(file, "--onnx"), open_session(file, "--onnx")
    assert message in caught.value.found
    assert todo in caught.value.todo
    assert ("truncated" in caught.value.todo) == (todo == "truncated download")


@pytest.mark.parametrize(
    ("content", "message", "todo"),
    [
        (
            onnx_bytes(
                [node("Slice", ["x", "k", "k", "i"], ["y"])],
                [X],
                [("y", FLOAT, ["N", 0])],
                {"k": np.int64([0]), "i": np.int64([1])},
            ),
            "output y has the shape [0], without elements",
            "OUTPUTS without 'y'",
        ),
        (
            onnx_bytes([node("Concat", ["x", "past"], ["y"], axis=1)], [X, ("past", FLOAT, ["N", 0])], [Y]),
            "input past has the shape [0], without elements",
            "a free axis there",
        ),
    ],
)
def test_a_tensor_without_elements_says_what_to_do(tmp_path: Path, content: bytes, message: str, todo: str) -> None:
    """Triton has none."""
    file = tmp_path / "m.onnx"
    file.write_bytes(content)
    with pytest.raises(BuildError) as caught:
        read_signature(check_file(file, "--onnx"), "--onnx", batched=True)
    assert caught.value.found == message
    assert todo in caught.value.todo


def test_inspect_says_what_is_no_tensor(tmp_path: Path) -> None:
    """`inspect` reads what a build refuses."""
    nodes = [node("SplitToSequence", ["x"], ["y"], axis=1)]
    file = tmp_path / "m.onnx"
    outputs = [helper.make_tensor_sequence_value_info("y", FLOAT, None)]
    file.write_bytes(onnx_bytes(nodes, [X], outputs))
    assert read_onnx(file, "m.onnx")[0].outputs == ("y: a sequence of tensors",)


def repeated(count: int) -> Any:
    """A loop that doubles the columns: ONNX Runtime knows neither rank nor sizes of what comes out."""
    scalar = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", INT64), ("c", TensorProto.BOOL))]
    value = [helper.make_tensor_value_info(n, FLOAT, None) for n in ("v", "w")]
    body = helper.make_graph(
        [node("Identity", ["c"], ["again"]), node("Concat", ["v", "v"], ["w"], axis=1)],
        "body",
        [*scalar, value[0]],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []), value[1]],
    )
    return onnx_bytes(
        [node("Loop", ["count", "", "x"], ["y"], body=body)], [X], [("y", FLOAT, None)], {"count": np.int64(count)}
    )


@pytest.mark.parametrize(
    ("content", "shape"),
    [
        (onnx_bytes(RELU, [X], [("y", FLOAT, None)]), (4,)),
        (onnx_bytes(RELU, [X], [helper.make_empty_tensor_value_info("y")]), (4,)),
        (repeated(1), (8,)),
    ],
)
def test_a_file_without_the_shape_of_an_output_is_built(
    root: Path, write_model: WriteModel, content: bytes, shape: tuple[int, ...]
) -> None:
    """ONNX Runtime infers the shape, or running the file shows it; what is published has it written down."""
    spec, cache = (write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=content), BuildCache(root / "c"))
    artifact = build(plan(spec, cache), cache)
    assert artifact.signature.batched
    assert artifact.signature.outputs[0].shape == shape
    assert artifact.signature.outputs[0].dtype == "FP32"
    onnx.checker.check_model(onnx.load(artifact.folder / "model.onnx"))
    session = open_session(artifact.folder / "model.onnx", "it")
    assert run_session(session, {"x": np.ones((3, 4), "f")}, "it")["y"].shape == (3, *shape)


def test_axes_of_size_minus_1_and_of_the_name_question_mark_are_free(write_model: WriteModel, root: Path) -> None:
    """Paddle's converter writes them: such a network batches, and its two axes may have different sizes."""
    content = onnx_bytes(
        [node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)],
        [("x", FLOAT, [-1, 3, "?", "?"])],
        [("y", FLOAT, [-1, 3])],
    )
    spec = write_model("name: net\nnetwork: {onnx: m.onnx}\n", m__onnx=content)
    cache = BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    assert artifact.signature.batched
    assert artifact.signature.inputs[0].shape == (3, -1, -1)
    assert artifact.signature.inputs[0].axis_names == ("", "", "")
    session = open_session(artifact.folder / "model.onnx", "here")
    x = np.ones((2, 3, 4, 6), np.float32) * np.array([1, 2], np.float32)[:, None, None, None]
    assert run_session(session, {"x": x}, "here")["y"].tolist() == [[1, 1, 1], [2, 2, 2]]
