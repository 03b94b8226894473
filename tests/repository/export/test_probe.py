"""Probing a file: which sizes, values and samples it is run on, and what a failure says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.conftest import WriteModel
from tests.repository.export.graphs import FLOAT, INT64, STRING, node, onnx_bytes
from tritonkit.errors import BuildError
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.export.tables import table_rows
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.optimize.make import job_of

SPEC = "name: net\nnetwork: {onnx: m.onnx}\n"
SAMPLES = "quality: {samples: data:samples}\n"
UNBATCHED = "serving: {max_batch_size: 0}\n"


def multiples(of: int, shape: list[Any]) -> bytes:
    """Down and up again, as networks for images do: only multiples fit."""
    axes = len(shape) - 2
    return onnx_bytes(
        [
            node("MaxPool", ["x"], ["a"], kernel_shape=[of] * axes, strides=[of] * axes),
            node("Resize", ["a", "", "s"], ["b"], mode="nearest"),
            node("Add", ["x", "b"], ["y"]),
        ],
        [("x", FLOAT, shape)],
        [("y", FLOAT, shape)],
        {"s": np.float32([1, 1, *[of] * axes])},
    )


MULTIPLES = multiples(4, ["N", 3, "H", "W"])
AT_LEAST_5 = onnx_bytes(
    [node("Conv", ["x", "w"], ["y"])],
    [("x", FLOAT, ["N", 1, "L"])],
    [("y", FLOAT, ["N", 1, "M"])],
    {"w": np.ones((1, 1, 5), "f")},
)


def built(write_model: WriteModel, cache: BuildCache, text: str, **files: Any) -> Artifact:
    """The artifact of a folder with these files."""
    return build(plan(write_model(text, **files), cache), cache)


def sizes(write_model: WriteModel, cache: BuildCache, content: bytes, text: str = SPEC) -> list[Any]:
    """Shapes of the first input, made up."""
    job = job_of(write_model(text, m__onnx=content), cache)
    return [next(iter(batch.values())).shape for batch in job.samples]


def samples(expression: str) -> str:
    """data.py with samples of these arrays."""
    return f"import numpy as np\ndef samples(): return [{expression}]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "shapes"),
    [
        (MULTIPLES, [(1, 3, 32, 32), (1, 3, 64, 64), (3, 3, 32, 32), (3, 3, 64, 64)]),
        (AT_LEAST_5, [(1, 1, 32), (1, 1, 64), (3, 1, 32), (3, 1, 64)]),
    ],
)
def test_an_axis_that_nothing_describes_is_tried_at_sensible_sizes(
    write_model: WriteModel, cache: BuildCache, content: bytes, shapes: list[Any]
) -> None:
    """The first size that ONNX Runtime runs is kept, and its double where that runs too."""
    assert sizes(write_model, cache, content) == shapes


@pytest.mark.slow
@pytest.mark.parametrize(("of", "size"), [(12, 48), (24, 48), (20, 640), (18, 288), (22, 352)])
def test_multiples_of_other_numbers_are_found(write_model: WriteModel, cache: BuildCache, of: int, size: int) -> None:
    """A small set of sizes has a multiple of each number that networks go down by."""
    assert sizes(write_model, cache, multiples(of, ["N", 1, "L"]))[0] == (1, 1, size)


def test_a_first_axis_of_images_that_is_no_batch_stays_small(write_model: WriteModel, cache: BuildCache) -> None:
    """Else a file that says imgsz 320 was run on 320 images."""
    model = onnx.load_from_string(MULTIPLES)
    model.metadata_props.add(key="imgsz", value="[320, 320]")
    shapes = sizes(write_model, cache, model.SerializeToString(), SPEC + UNBATCHED)
    assert shapes == [(3, 3, 320, 320), (6, 3, 640, 640)]


def only(size: int) -> bytes:
    """A network whose open axis takes one size; no weight that meets it says which."""
    return onnx_bytes(
        [node("Neg", ["x"], ["n"]), node("MatMul", ["n", "w"], ["y"])],
        [("x", FLOAT, ["N", "size"])],
        [("y", FLOAT, ["N", 2])],
        {"w": np.ones((size, 2), "f")},
    )


def test_a_size_that_the_file_itself_names_is_tried_first(write_model: WriteModel, cache: BuildCache) -> None:
    """Exporters write into the metadata what a network was made for."""
    model = onnx.load_from_string(only(352))
    model.metadata_props.add(key="imgsz", value="[352, 352]")
    assert sizes(write_model, cache, model.SerializeToString())[1] == (1, 352)
    assert sizes(write_model, cache, only(224))[1] == (1, 224)
    assert sizes(write_model, cache, only(3))[1] == (1, 3)


def test_a_network_that_runs_at_no_tried_size_says_which_keys_help(write_model: WriteModel, cache: BuildCache) -> None:
    """The message has the file's own names, and each way to describe the input."""
    with pytest.raises(BuildError) as caught:
        built(write_model, cache, SPEC, m__onnx=only(77))
    error = caught.value
    assert "free_axes: {size: {min: 32, max: 640, multiple_of: 32}}" in error.todo
    assert "inputs: {x: {dtype: FP32, shape: [224]}}" in error.todo
    assert "quality: {samples: data:samples}" in error.todo
    assert "'x': array" in error.todo
    assert "32, 64, 224" in error.wanted


@pytest.mark.slow
def test_described_sizes_that_do_not_run_name_the_same_keys(write_model: WriteModel, cache: BuildCache) -> None:
    """free_axes allows what the network refuses."""
    text = "name: net\nnetwork: {onnx: m.onnx, free_axes: {H: {max: 60}, W: {max: 60}}}\n"
    with pytest.raises(BuildError) as caught:
        built(write_model, cache, text, m__onnx=MULTIPLES)
    assert "multiple_of" in caught.value.todo
    described = text.replace("max: 60", "multiple_of: 4, max: 60")
    assert sizes(write_model, cache, MULTIPLES, described)[1] == (1, 3, 60, 60)
    assert built(write_model, cache, described, m__onnx=MULTIPLES).quality


# A voice detector takes one rate only, and gives fewer rows for another one.
RATE = onnx_bytes(
    [
        node("Equal", ["rate_hz", "k16"], ["is16"]),
        node("Cast", ["is16"], ["one"], to=INT64),
        node("Mul", ["one", "two"], ["w"]),
        node("Concat", ["m1", "w"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["p"]),
        node("ReduceMean", ["p"], ["y"], axes=[1], keepdims=1),
    ],
    [("x", FLOAT, [1, 512]), ("rate_hz", INT64, [1])],
    [("y", FLOAT, ["M", 1])],
    {"k16": np.int64([16000]), "two": np.int64([2]), "m1": np.int64([-1])},
)


def test_samples_are_run_as_they_are(write_model: WriteModel, cache: BuildCache) -> None:
    """A network that takes no other values than those builds."""
    data = samples("{'x': np.ones((1, 512), 'f'), 'rate_hz': np.array([16000])}")
    artifact = built(write_model, cache, SPEC + UNBATCHED + SAMPLES, m__onnx=RATE, data__py=data)
    assert artifact.quality is not None
    assert artifact.quality.samples == 1


def rows(*, transposed: bool) -> bytes:
    """Places of what is not zero: [places, 2] or [2, places]."""
    last = [node("Transpose", ["n"], ["y"], perm=[1, 0])] if transposed else [node("Identity", ["n"], ["y"])]
    shape = ["found", 2] if transposed else [2, "found"]
    return onnx_bytes([node("NonZero", ["x"], ["n"]), *last], [("x", FLOAT, ["N", 4])], [("y", INT64, shape)])


def test_rows_that_depend_on_the_data_are_served_without_a_batch(write_model: WriteModel, cache: BuildCache) -> None:
    """Each request has its own shape there; a batch is refused, with the key that serves it."""
    artifact = built(write_model, cache, SPEC + UNBATCHED, m__onnx=rows(transposed=False))
    assert artifact.signature.outputs[0].shape == (2, -1)
    batched = SPEC + "serving: {max_batch_size: 8}\n"
    with pytest.raises(BuildError, match="depends on the data") as caught:
        built(write_model, cache, batched, m__onnx=rows(transposed=True))
    assert "max_batch_size: 0" in caught.value.todo


def test_shapes_are_compared_on_the_samples(write_model: WriteModel, cache: BuildCache) -> None:
    """Each item alone: two shapes of an output for one shape of the input."""
    content = onnx_bytes(
        [
            node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0),
            node("Greater", ["sums", "zero"], ["over"]),
            node("Compress", ["x", "over"], ["y"], axis=1),
        ],
        [("x", FLOAT, ["N", 4])],
        [("y", FLOAT, ["N", "kept"])],
        {"zero": np.float32(0), "axes": np.int64([0])},
    )
    data = samples("{'x': np.float32([[1, 1, 1, 0], [1, 0, 0, 0]])}")
    with pytest.raises(BuildError, match=r"\[1, 3\] or \[1, 1\]"):
        built(write_model, cache, SPEC + SAMPLES + "serving: {max_batch_size: 8}\n", m__onnx=content, data__py=data)


NAMED = onnx_bytes(
    [
        node("Gather", ["table", "input_ids"], ["a"]),
        node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        node("Cast", ["key_padding_mask"], ["hidden"], to=FLOAT),
        node("Cast", ["kinds"], ["kinds32"], to=TensorProto.INT32),
        node("Gather", ["one_row", "kinds32"], ["b"]),
        node("Add", ["mask", "hidden"], ["c"]),
        node("Add", ["a", "b"], ["d"]),
        node("Add", ["c", "d"], ["e"]),
        node("Cast", ["lengths"], ["f"], to=FLOAT),
        node("Add", ["e", "f"], ["y"]),
    ],
    [
        *((name, INT64, ["N", "L"]) for name in ("input_ids", "attention_mask", "kinds")),
        ("key_padding_mask", TensorProto.BOOL, ["N", "L"]),
        ("lengths", INT64, ["N", 1]),
    ],
    [("y", FLOAT, ["N", "L"])],
    {"table": np.zeros(50, "f"), "one_row": np.zeros(1, "f")},
)


def test_values_fit_what_an_input_is(write_model: WriteModel, cache: BuildCache) -> None:
    """Masks show everything, ids lie in their tables, and lengths are those of the batch."""
    job = job_of(write_model(SPEC, m__onnx=NAMED), cache)
    batch = job.samples[-1]
    assert table_rows(onnx.load_from_string(NAMED)) == {"input_ids": 50, "kinds": 1}
    assert batch["attention_mask"].all()
    assert not batch["key_padding_mask"].any()
    assert not batch["kinds"].any()
    assert 1 < batch["input_ids"].max() < 50
    assert (batch["lengths"] == 64).all()
    assert built(write_model, cache, SPEC, m__onnx=NAMED).quality is not None


TEXT = onnx_bytes([node("Identity", ["t"], ["y"])], [("t", STRING, ["N", 1])], [("y", STRING, ["N", 1])])


@pytest.mark.parametrize(
    ("more", "texts"), [("", {"hello world"}), ("example: {t: {text: Guten Tag}}\n", {"Guten Tag"})]
)
def test_texts_are_made_up_or_the_example(
    write_model: WriteModel, cache: BuildCache, more: str, texts: set[str]
) -> None:
    """A network of strings builds without samples."""
    job = job_of(write_model(SPEC + more, m__onnx=TEXT), cache)
    assert texts <= {str(text) for batch in job.samples for text in batch["t"].ravel()}
    assert built(write_model, cache, SPEC + more, m__onnx=TEXT).signature.inputs[0].dtype == "BYTES"


BF16 = onnx_bytes(
    [
        node("Cast", ["x"], ["wide"], to=FLOAT),
        node("Relu", ["wide"], ["cut"]),
        node("Cast", ["cut"], ["y"], to=TensorProto.BFLOAT16),
    ],
    [("x", TensorProto.BFLOAT16, ["N", 4])],
    [("y", TensorProto.BFLOAT16, ["N", 4])],
)


@pytest.mark.parametrize("dtype", ["np.float32", "ml_dtypes.bfloat16"])
def test_bf16_is_given_as_float32_or_as_ml_dtypes_has_it(
    write_model: WriteModel, cache: BuildCache, dtype: str
) -> None:
    """Both hold the values, and so does what the network gives."""
    code = samples(f"{{'x': np.array([[1.0, -2.0, 3.5, 1e30]], {dtype})}}").replace(
        "import numpy", "import ml_dtypes\nimport numpy"
    )
    job = job_of(write_model(SPEC + SAMPLES, m__onnx=BF16, data__py=code), cache)
    ((output, *_), (given, *_)) = job.reference.outputs, job.reference.batches
    assert given["x"].dtype == np.float32
    np.testing.assert_allclose(output["y"], [[1.0, 0.0, 3.5, 1e30]], rtol=2**-8)


def test_bf16_is_made_up(write_model: WriteModel, cache: BuildCache) -> None:
    """Without samples it builds as well."""
    assert built(write_model, cache, SPEC, m__onnx=BF16).signature.inputs[0].dtype == "BF16"


@pytest.mark.parametrize("operator", ["Sqrt", "Log"])
def test_a_network_of_roots_and_logarithms_gets_positive_numbers(
    write_model: WriteModel, cache: BuildCache, operator: str
) -> None:
    """NaN compares with nothing: numbers between 0 and 1 are made up where others give NaN."""
    content = onnx_bytes([node(operator, ["x"], ["y"])], [("x", FLOAT, ["N", 9])], [("y", FLOAT, ["N", 9])])
    job = job_of(write_model(SPEC, m__onnx=content), cache)
    assert all((batch["x"] > 0).all() for batch in job.samples)
    assert built(write_model, cache, SPEC, m__onnx=content).quality is not None


@pytest.mark.parametrize("array", ["[[b'ja']]", "[['ja']]", "[[b'ja']], object", "[['ja']], object"])
def test_samples_of_texts_may_be_bytes(write_model: WriteModel, cache: BuildCache, array: str) -> None:
    """ONNX Runtime would take bytes for the text b'ja'."""
    data = samples(f"{{'t': np.array({array})}}")
    job = job_of(write_model(SPEC + SAMPLES, m__onnx=TEXT, data__py=data), cache)
    assert job.reference.outputs[0]["y"].tolist() == [["ja"]]


def test_a_weight_says_the_size_of_the_axis_it_meets(write_model: WriteModel, cache: BuildCache) -> None:
    """Channels of a convolution and columns of a product; the other axes are tried."""
    wide = onnx_bytes(
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", FLOAT, ["N", "T", "width"])],
        [("y", FLOAT, ["N", "T", 2])],
        {"w": np.ones((77, 2), "f")},
    )
    assert sizes(write_model, cache, wide)[:2] == [(1, 32, 77), (1, 64, 77)]
    channels = onnx_bytes(
        [node("Conv", ["x", "w"], ["y"], group=2)],
        [("x", FLOAT, ["N", "C", "L"])],
        [("y", FLOAT, ["N", 4, "M"])],
        {"w": np.ones((4, 5, 3), "f")},
    )
    assert sizes(write_model, cache, channels)[:2] == [(1, 10, 32), (1, 10, 64)]


def test_two_axes_may_need_different_sizes(write_model: WriteModel, cache: BuildCache) -> None:
    """A state of one row next to a long input: no one size fits both."""
    content = onnx_bytes(
        [node("Conv", ["x", "w"], ["c"]), node("Squeeze", ["h", "first"], ["one"]), node("Add", ["c", "one"], ["y"])],
        [("x", FLOAT, ["N", 1, "L"]), ("h", FLOAT, ["rows", 1])],
        [("y", FLOAT, ["N", 1, "M"])],
        {"w": np.ones((1, 1, 5), "f"), "first": np.int64([0])},
    )
    job = job_of(write_model(SPEC + UNBATCHED, m__onnx=content), cache)
    assert [value.shape for value in job.samples[0].values()] == [(1, 1, 32), (1, 1)]


def one_hot(*, compared: bool) -> bytes:
    """Ids made vectors of 40, by OneHot or by comparison with a range, as JAX writes it."""
    nodes = [node("OneHot", ["ids", "depth", "values"], ["hot"])]
    if compared:
        nodes = [
            node("Unsqueeze", ["ids", "last"], ["column"]),
            node("Equal", ["column", "range"], ["same"]),
            node("Cast", ["same"], ["hot"], to=FLOAT),
        ]
    return onnx_bytes(
        [*nodes, node("MatMul", ["hot", "w"], ["y"])],
        [("ids", INT64, ["N", 30])],
        [("y", FLOAT, ["N", 30, 2])],
        {
            "depth": np.int64([40]),
            "values": np.float32([0, 1]),
            "w": np.ones((40, 2), "f"),
            "last": np.int64([2]),
            "range": np.arange(40),
        },
    )


@pytest.mark.parametrize("compared", [False, True])
def test_one_hot_says_how_many_ids_there_are(write_model: WriteModel, cache: BuildCache, compared: bool) -> None:
    """They are drawn from all of these."""
    content = one_hot(compared=compared)
    assert table_rows(onnx.load_from_string(content)) == {"ids": 40}
    job = job_of(write_model(SPEC, m__onnx=content), cache)
    assert 30 < job.samples[-1]["ids"].max() < 40


def test_ids_without_a_table_go_as_far_as_the_network_runs(write_model: WriteModel, cache: BuildCache) -> None:
    """Up to 255; those that a hidden table refuses and those that are sizes stay small."""
    content = onnx_bytes(
        [
            node("Cast", ["free"], ["a"], to=FLOAT),
            node("Add", ["half", "half"], ["shifted"]),
            node("Gather", ["table", "shifted"], ["b"]),
            node("Cast", ["b"], ["c"], to=FLOAT),
            node("ReduceMax", ["count"], ["most"], keepdims=0),
            node("Unsqueeze", ["most", "zero"], ["size"]),
            node("ConstantOfShape", ["size"], ["z"]),
            node("Add", ["a", "c"], ["y"]),
        ],
        [("free", TensorProto.INT32, ["N", 30]), ("half", INT64, ["N", 30]), ("count", INT64, ["N", 30])],
        [("y", FLOAT, ["N", 30]), ("z", FLOAT, ["K"])],
        {"table": np.arange(40, dtype="f"), "zero": np.int64([0])},
    )
    job = job_of(write_model(SPEC + UNBATCHED, m__onnx=content), cache)
    batch = job.samples[-1]
    assert batch["free"].max() > 200
    assert 2 < batch["half"].max() < 20
    assert batch["count"].max() == 1


def test_a_file_that_takes_no_single_item_is_served_whole(write_model: WriteModel, cache: BuildCache) -> None:
    """Its first axis is free, and only sizes from 4 on run: that is neither a batch axis nor an error."""
    content = onnx_bytes(
        [node("Gather", ["x", "fourth"], ["row"]), node("Add", ["x", "row"], ["y"])],
        [("x", FLOAT, ["N", "width"])],
        [("y", FLOAT, ["N", "width"])],
        {"fourth": np.int64([3])},
    )
    artifact = built(write_model, cache, SPEC, m__onnx=content)
    assert not artifact.signature.batched
    assert artifact.independence is not None
    assert artifact.independence.state == "unknown"
    assert "alone does not run" in artifact.independence.seen
