"""Requests of different lengths in one batch, by both kinds of backends in a real Triton."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from tests.server.onnx_models import BATCH, COMPLETE, onnx_model, tensors
from tests.server.raw import Running, ask, ask_together, executions
from tests.server.sharing import SharedBackends
from tests.waiting import eventually

PAD = {"x": {"axis": 0, "value": 7}, "mask": {"axis": 0, "value": 0}, "both": {"axis": 1}}
Client = grpc.InferenceServerClient
Arrays = dict[str, np.ndarray]


def parameter(padding: object) -> str:
    """The model's parameter."""
    text = padding if isinstance(padding, str) else json.dumps(padding)
    quoted = text.replace('"', '\\"')
    return f'parameters {{ key: "tritonkit.pad" value {{ string_value: "{quoted}" }} }}\n'


def bound(most: object) -> str:
    """The parameter with the most positions of a run."""
    return f'parameters {{ key: "tritonkit.max_batch_tokens" value {{ string_value: "{most}" }} }}\n'


def write_lengths(folder: Path, padding: object, more: str = "") -> None:
    """x INT64 and mask FP32, both [n, t], to: both [n, 2, t], x and its double; total [n, 1], of what the mask
    leaves; and width [n, 1], how many positions the run had, the padded ones with them."""
    ragged = "".join(
        f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [-1] allow_ragged_batch: true }}\n'
        for name, kind in (("x", "INT64"), ("mask", "FP32"))
    )
    onnx_model(
        folder,
        [
            helper.make_node("Constant", [], ["middle"], value_ints=[1]),
            helper.make_node("Cast", ["x"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["number", "number"], ["twice"]),
            helper.make_node("Unsqueeze", ["number", "middle"], ["one_row"]),
            helper.make_node("Unsqueeze", ["twice", "middle"], ["two_row"]),
            helper.make_node("Concat", ["one_row", "two_row"], ["both"], axis=1),
            helper.make_node("Mul", ["number", "mask"], ["left"]),
            helper.make_node("ReduceSum", ["left", "middle"], ["total"], keepdims=1),
            helper.make_node("Sub", ["number", "number"], ["nothing"]),
            helper.make_node("Exp", ["nothing"], ["ones"]),
            helper.make_node("ReduceSum", ["ones", "middle"], ["width"], keepdims=1),
        ],
        [("x", TensorProto.INT64, ["n", "t"]), ("mask", TensorProto.FLOAT, ["n", "t"])],
        [
            ("both", TensorProto.FLOAT, ["n", 2, "t"]),
            ("total", TensorProto.FLOAT, ["n", 1]),
            ("width", TensorProto.FLOAT, ["n", 1]),
        ],
        f"max_batch_size: {BATCH}\n{COMPLETE}\n{ragged}"
        + tensors("output", both="FP32 [2, -1]", total="FP32 [1]", width="FP32 [1]")
        + (parameter(padding) if padding else "")
        + more,
    )


WRONG = {
    "no_such": ({**PAD, "z": {"axis": 0}}, "wanted tensors of the model"),
    "fixed_axis": ({**PAD, "both": {"axis": 0}}, "found axis 0, wanted one of free size"),
    "left_out": ({"x": PAD["x"]}, "input 'mask': allow_ragged_batch found; wanted it in parameter"),
    "no_number": ({**PAD, "x": {"axis": 0, "value": "a"}}, "found value a, wanted"),
    "no_value": ({**PAD, "x": {"axis": 0}}, "wanted a whole number of INT64"),
    "no_whole": ({**PAD, "x": {"axis": 0, "value": 0.5}}, "found value 0.5, wanted a whole number"),
    "no_axis": ({**PAD, "both": {"axis": "a"}}, "found axis a, wanted one of free size"),
    "no_json": ("{", "wanted an object of objects"),
}


WRONG_BOUNDS = {"no_whole_bound": "2.5", "no_bound": "0", "word": "many", "too_large": "9" * 20}
MOST = 24


def write_all(root: Path) -> None:
    """Networks that are served, and those whose parameter is wrong."""
    write_lengths(root / "lengths", PAD)
    write_lengths(root / "bounded", PAD, bound(MOST))
    for name, most in WRONG_BOUNDS.items():
        write_lengths(root / name, PAD, bound(most))
    for name, (asked, _) in WRONG.items():
        write_lengths(root / name, asked)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("native_server", id="native"),
        pytest.param("cuda_server", id="cuda"),
        pytest.param("stand_in_server", id="python"),
    ],
)
def triton(request: pytest.FixtureRequest) -> Iterator[Running]:
    """All kinds of the backend with the networks of this file."""
    server: SharedBackends = request.getfixturevalue(request.param)
    with server.serving(write_all) as running:
        yield running


def of_length(length: int, rows: int = 1, start: int = 1) -> Arrays:
    """Numbers from `start`, all of which count."""
    x = np.arange(start, start + rows * length, dtype=np.int64).reshape(rows, length)
    return {"x": x, "mask": np.ones((rows, length), np.float32)}


def check(request: Arrays, answer: Arrays | str) -> int:
    """Its own numbers and no one else's; gives the width of the run that it was in."""
    assert isinstance(answer, dict), answer
    x = request["x"].astype(np.float32)
    np.testing.assert_array_equal(answer["both"], np.stack([x, 2 * x], axis=1))
    np.testing.assert_array_equal(answer["total"], x.sum(axis=1, keepdims=True))
    (width,) = set(answer["width"].ravel().tolist())
    return int(width)


def test_different_lengths_share_a_run(client: Client) -> None:
    """Each gets an answer as long as it was, in the batch of the longest."""
    requests = [of_length(n, rows, 10 * n) for n, rows in ((3, 1), (11, 2), (8, 1), (11, 1), (5, 3))]
    before = executions(client, "lengths")
    answers = ask_together(client, "lengths", requests)
    widths = [check(*pair) for pair in zip(requests, answers, strict=True)]
    # Triton counts a run after its answers have left.
    eventually(lambda: executions(client, "lengths") > before, "a run counted")
    assert executions(client, "lengths") == before + 1
    assert widths == [11] * 5


def test_a_much_longer_one_runs_apart(client: Client, request: pytest.FixtureRequest) -> None:
    """Padding the others to its length would cost more than a second run, which costs a GPU thousands of positions."""
    longest = 6000 if "cuda" in request.node.name else 200
    requests = [of_length(n) for n in (4, longest, 6, longest - 10, 5, 4, 6, 4)]
    answers = ask_together(client, "lengths", requests)
    widths = [check(*pair) for pair in zip(requests, answers, strict=True)]
    assert widths == [6, longest, 6, longest, 6, 6, 6, 6]


def test_a_run_has_a_bounded_number_of_positions(client: Client) -> None:
    """Requests in order of length: 12 and 11 fill the bound, 9 with the next would cost more than 9 alone."""
    lengths = ((3, 1), (12, 1), (4, 1), (9, 1), (2, 2), (11, 1), (4, 1))
    requests = [of_length(n, rows, 10 * n) for n, rows in lengths]
    answers = ask_together(client, "bounded", requests)
    widths = [check(*pair) for pair in zip(requests, answers, strict=True)]
    assert widths == [4, 12, 4, 9, 4, 12, 4]


def test_a_request_beyond_the_bound_runs_alone(client: Client) -> None:
    """A request is not taken apart, and its neighbors are not padded to its length."""
    requests = [of_length(2, 3), of_length(MOST + 6), of_length(13, 2), of_length(3, 2)]
    answers = ask_together(client, "bounded", requests)
    widths = [check(*pair) for pair in zip(requests, answers, strict=True)]
    assert widths == [3, MOST + 6, 13, 3]


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_a_wrong_bound_is_refused(client: Client, triton: Running, name: str) -> None:
    """When the model is loaded, by name."""
    assert not client.is_model_ready(name)
    lines = [line for line in triton.log.read_text().splitlines() if f"'{name}'" in line]
    message = f"tritonkit.max_batch_tokens: found {WRONG_BOUNDS[name]}, wanted a whole number above 0"
    assert any(message in line for line in lines), lines[-5:]


def test_one_alone_is_not_padded(client: Client) -> None:
    """Once and again: the second answer may be written in place."""
    for _ in range(2):
        request = of_length(9, BATCH)
        assert check(request, ask(client, "lengths", **request)) == 9


def test_each_gets_the_outputs_that_it_wants(client: Client) -> None:
    """Cut, in one run with others that want more."""
    requests = [of_length(3), of_length(6), of_length(4), of_length(6, 5)]
    outputs = [["both"], ["width"], ["total", "width"], None]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda r, names: ask(client, "lengths", names, **r), requests, outputs))
    assert [set(answer) for answer in answers[:3]] == [{"both"}, {"width"}, {"total", "width"}]
    x = requests[0]["x"].astype(np.float32)
    np.testing.assert_array_equal(answers[0]["both"], np.stack([x, 2 * x], axis=1))
    assert answers[1]["width"].tolist() == answers[2]["width"].tolist() == [[6.0]]
    assert check(requests[3], answers[3]) == 6


def test_lengths_of_a_request_must_agree(client: Client) -> None:
    """It fails alone; its neighbors are answered."""
    bad = {"x": of_length(4)["x"], "mask": of_length(3)["mask"]}
    requests = [of_length(5), bad, of_length(2, 6)]
    first, refused, last = ask_together(client, "lengths", requests)
    check(requests[0], first)
    check(requests[2], last)
    assert isinstance(refused, str)
    assert "found length" in refused


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_parameter_is_refused(client: Client, triton: Running, name: str) -> None:
    """When the model is loaded, by name."""
    assert not client.is_model_ready(name)
    with pytest.raises(InferenceServerException):
        ask(client, name, **of_length(3))
    lines = [line for line in triton.log.read_text().splitlines() if f"'{name}'" in line]
    assert any(WRONG[name][1] in line for line in lines), lines[-5:]
