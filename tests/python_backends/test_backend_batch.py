"""Merging, splitting and errors of the stand-in, with real ONNX Runtime sessions."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from backend_batch import Network, Request, RequestError
from backend_config import TRITON_TO_NUMPY
from onnx import TensorProto, helper
from onnxruntime_config import tensor_specs
from onnxruntime_engine import Session


class Watched:
    """A session that notes what it was asked to run."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self.session = session
        self.runs: list[tuple[list[str], dict[str, np.ndarray]]] = []

    def run(self, names: list[str], feed: dict[str, np.ndarray], options: Any) -> Any:
        """Run and note."""
        self.runs.append((names, feed))
        return self.session.run(names, feed, options)


def network(
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int, list[Any]]],
    outputs: list[tuple[str, int, list[Any]]],
    batched: bool = True,
    **more: Any,
) -> Network:
    """A Network named m on a graph made here; its session is Watched."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    engine = Session(Watched(session))
    return Network("m", engine, tensor_specs(session.get_inputs()), batched, **more)


def runs(model: Network) -> list[tuple[list[str], dict[str, np.ndarray]]]:
    """The arguments of every run of its session."""
    return model.engine.session.runs


def two_outputs() -> Network:
    """sum = a + b and twice = a + a, float [n, t]."""
    return network(
        [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Add", ["a", "a"], ["twice"])],
        [("a", TensorProto.FLOAT, ["n", "t"]), ("b", TensorProto.FLOAT, ["n", "t"])],
        [("sum", TensorProto.FLOAT, ["n", "t"]), ("twice", TensorProto.FLOAT, ["n", "t"])],
    )


def lookup() -> Network:
    """y = table[i]; ONNX Runtime fails the whole run for an index outside 0..3."""
    return network(
        [
            helper.make_node("Constant", [], ["table"], value_floats=[0.0, 10.0, 20.0, 30.0]),
            helper.make_node("Gather", ["table", "i"], ["y"]),
        ],
        [("i", TensorProto.INT64, ["n", 1])],
        [("y", TensorProto.FLOAT, ["n", 1])],
    )


def passing(dtype: int, batched: bool = True, dims: list[Any] | None = None) -> Network:
    """y = x."""
    dims = ["n", 1] if dims is None else dims
    return network([helper.make_node("Identity", ["x"], ["y"])], [("x", dtype, dims)], [("y", dtype, dims)], batched)


def floats(*shape: int, start: float = 0) -> np.ndarray:
    """Counting float32 values."""
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype(np.float32)


def test_single_request_is_not_copied() -> None:
    """The session gets the very arrays of the request."""
    model = two_outputs()
    a, b = floats(2, 3), floats(2, 3, start=1)
    (answer,) = model.answer([Request({"a": a, "b": b}, ["sum"])])
    assert isinstance(answer, dict)
    np.testing.assert_array_equal(answer["sum"], a + b)
    ((names, feed),) = runs(model)
    assert names == ["sum"]
    assert feed["a"] is a
    assert feed["b"] is b


def test_equal_shapes_run_once_and_are_split_into_views() -> None:
    """Three requests make one run; each answer is a view of its rows."""
    model = two_outputs()
    requests = [Request({"a": floats(n, 3, start=n), "b": floats(n, 3)}, ["sum"]) for n in (1, 2, 4)]
    answers = model.answer(requests)
    assert len(runs(model)) == 1
    assert len(runs(model)[0][1]["a"]) == 7
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict)
        expected = request.inputs["a"] + request.inputs["b"]
        np.testing.assert_array_equal(answer["sum"], expected)
        assert answer["sum"].base is not None


def test_ragged_requests_are_grouped_by_shape() -> None:
    """Lengths 3, 5, 3 make two runs and answers in the order asked."""
    model = two_outputs()
    requests = [Request({"a": floats(1, t, start=k), "b": floats(1, t)}, ["sum"]) for k, t in enumerate((3, 5, 3))]
    answers = model.answer(requests)
    assert len(runs(model)) == 2
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict)
        np.testing.assert_array_equal(answer["sum"], request.inputs["a"] + request.inputs["b"])


def test_only_wanted_outputs_are_computed() -> None:
    """The run computes the union of the outputs that the merged requests want, and no more."""
    model = two_outputs()
    inputs = {"a": floats(1, 2), "b": floats(1, 2)}
    model.answer([Request(inputs, ["twice"]), Request(inputs, ["twice"])])
    assert runs(model)[-1][0] == ["twice"]
    model.answer([Request(inputs, ["twice"]), Request(inputs, ["sum"])])
    assert sorted(runs(model)[-1][0]) == ["sum", "twice"]


def test_unbatched_model_runs_one_request_at_a_time() -> None:
    """With max_batch_size 0 the first axis belongs to the request."""
    model = passing(TensorProto.FLOAT, batched=False, dims=["k", 2])
    answers = model.answer([Request({"x": floats(k, 2)}, ["y"]) for k in (1, 3)])
    assert [answer["y"].shape for answer in answers if isinstance(answer, dict)] == [(1, 2), (3, 2)]
    assert len(runs(model)) == 2


def test_failing_run_blames_the_guilty_request_only() -> None:
    """When a merged run fails, each request runs alone and the good ones are answered."""
    model = lookup()
    requests = [Request({"i": np.array([[i]])}, ["y"]) for i in (1, 99, 3)]
    first, second, third = model.answer(requests)
    assert isinstance(first, dict)
    assert isinstance(third, dict)
    assert (first["y"].item(), third["y"].item()) == (10, 30)
    assert isinstance(second, RequestError)
    assert "model 'm': ONNX Runtime: " in str(second)
    assert "99" in str(second)


GOOD = {"a": floats(1, 2), "b": floats(1, 2)}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": GOOD["a"]}, "model 'm': input 'b' is missing; found ['a']"),
        ({**GOOD, "c": GOOD["a"]}, "model 'm': input 'c' is not the model's; it has ['a', 'b']"),
        ({**GOOD, "b": GOOD["b"].astype(np.float64)}, "model 'm', input 'b': found float64, wanted float32"),
        ({**GOOD, "b": floats(1, 2, 1)}, "model 'm', input 'b': found shape [1, 2, 1], wanted [-1, -1]"),
        ({**GOOD, "b": floats(2, 2)}, "inputs differ in batch size: {'a': 1, 'b': 2}"),
    ],
)
def test_bad_request_is_named_and_its_neighbor_answered(inputs: dict[str, np.ndarray], message: str) -> None:
    """The error has model, input, found and wanted; the good request next to it succeeds."""
    bad, good = two_outputs().answer([Request(inputs, ["sum"]), Request(GOOD, ["sum"])])
    assert isinstance(bad, RequestError)
    assert message in str(bad)
    assert isinstance(good, dict)


def test_fixed_axis_of_the_file_is_checked() -> None:
    """An axis the file fixes is checked even where the configuration leaves it free."""
    model = passing(TensorProto.FLOAT, dims=["n", 3])
    (answer,) = model.answer([Request({"x": floats(1, 4)}, ["y"])])
    assert "found shape [1, 4], wanted [-1, 3]" in str(answer)


NUMBERS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_numeric_type_passes(name: str) -> None:
    """Each of Triton's numeric types goes in and comes out as itself, merged and alone."""
    model = passing(NUMBERS[name])
    values = [np.array([[value]], dtype=TRITON_TO_NUMPY[name]) for value in (0, 1)]
    for count in (1, 2):
        answers = model.answer([Request({"x": value}, ["y"]) for value in values[:count]])
        for value, answer in zip(values, answers, strict=False):
            assert isinstance(answer, dict)
            assert answer["y"].dtype == value.dtype
            np.testing.assert_array_equal(answer["y"], value)


def test_strings_pass() -> None:
    """Bytes go in as text and come out as text, empty and non-Latin ones too."""
    texts = ["", "zwölf", "שלום 🙂"]
    requests = [Request({"x": np.array([[text.encode()]], dtype=object)}, ["y"]) for text in texts]
    answers = passing(TensorProto.STRING).answer(requests)
    assert [answer["y"].item() for answer in answers if isinstance(answer, dict)] == texts


def test_string_that_is_not_utf8_fails_its_request_only() -> None:
    """The message has the element and the byte."""
    requests = [Request({"x": np.array([[data]], dtype=object)}, ["y"]) for data in (b"ab\xff", b"ok")]
    bad, good = passing(TensorProto.STRING).answer(requests)
    assert "input 'x': element 0 is not valid UTF-8 at byte 2" in str(bad)
    assert isinstance(good, dict)


def test_scalar_goes_in_and_out() -> None:
    """Rank 0 in the file is [1] outside."""
    model = network(
        [helper.make_node("Identity", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, [])],
        [("y", TensorProto.FLOAT, [])],
        batched=False,
        scalars={"y": (1,)},
    )
    (answer,) = model.answer([Request({"x": floats(1, start=7)}, ["y"])])
    assert isinstance(answer, dict)
    assert answer["y"].tolist() == [7.0]


def test_output_without_the_batch_is_refused() -> None:
    """A network that sums over the batch cannot be split between requests, and says so."""
    model = network(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
        [("x", TensorProto.FLOAT, ["n", 2])],
        [("y", TensorProto.FLOAT, [])],
    )
    answers = model.answer([Request({"x": floats(1, 2)}, ["y"])] * 2)
    assert all("output 'y': found shape []" in str(answer) for answer in answers)


def test_no_requests() -> None:
    """Nothing in, nothing out."""
    assert two_outputs().answer([]) == []
