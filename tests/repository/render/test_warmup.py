"""Warm-up requests: which batch sizes and lengths, on what data, and what is refused."""

from __future__ import annotations

import struct
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository.render.cases import HERE, Case, make_case
from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import GivenInput, StartNeeds, TensorInfo
from tritonkit.repository.modelspec import FreeAxis
from tritonkit.repository.modelspec.sequences import ControlInput
from tritonkit.repository.render import ModelPlan
from tritonkit.repository.render.warmup import automatic, serialize


def names(case: Case) -> list[str]:
    """Names of the samples of a case's only model."""
    (plan,) = case.plans()
    return [sample.name for sample in plan.warmup]


def net(serving: dict[str, Any], root: Path, **more: Any) -> Case:
    """A network x FP32 [4] -> y FP32 [4] served as given."""
    facts = {
        "model": {"name": "net", "network": {"onnx": "model.onnx"}, "serving": serving},
        "signature": {"inputs": {"x": ["FP32", [4]]}, "outputs": {"y": ["FP32", [4]]}},
    }
    return make_case("net", facts | more, root)


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({}, ["batch-1", "batch-64"]),
        ({"max_batch_size": 1}, ["batch-1"]),
        ({"max_batch_size": 8, "dynamic_batching": False}, ["batch-1", "batch-8"]),
        ({"dynamic_batching": {"preferred_batch_size": [8, 4, 1]}}, ["batch-1", "batch-4", "batch-8"]),
        ({"sequence_batching": {}}, ["batch-1"]),
        ({"model_warmup": "off"}, []),
    ],
)
def test_covers_batch_one_and_what_is_preferred(serving: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    """Batch 1 and every preferred size, or the largest where none is preferred."""
    assert names(net(serving, tmp_path)) == expected


def test_a_network_without_batch_axis_is_warmed_up_once(tmp_path: Path) -> None:
    """max_batch_size 0 gives one sample of one request."""
    case = net(
        {"max_batch_size": 0},
        tmp_path,
        signature={"batched": False, "inputs": {"x": ["FP32", [4]]}, "outputs": {"y": ["FP32", [4]]}},
    )
    assert names(case) == ["batch-1"]


def test_each_warm_size_of_a_free_axis_has_a_sample() -> None:
    """Every batch size meets every size, and tensors that share the axis share the size."""
    tensors = [TensorInfo(name, "INT64", (-1,), ("length",)) for name in ("ids", "mask")]
    axes = {"length": FreeAxis(max=512, warm=(16, 64))}
    warmup = automatic(tensors, [1, 4], axes, {}, {})
    assert [sample.name for sample in warmup.samples] == [
        "batch-1-length-16",
        "batch-1-length-64",
        "batch-4-length-16",
        "batch-4-length-64",
    ]
    for sample in warmup.samples:
        assert sample.inputs["ids"].shape == sample.inputs["mask"].shape
        assert {data.data for data in sample.inputs.values()} == {"zero"}


def test_an_axis_without_warm_sizes_is_warmed_up_at_both_ends() -> None:
    """min and max stand in for warm sizes."""
    x = TensorInfo("x", "FP32", (-1, 3), ("t", ""))
    warmup = automatic([x], [1], {"t": FreeAxis(min=2, max=9)}, {}, {})
    assert [sample.inputs["x"].shape for sample in warmup.samples] == [(2, 3), (9, 3)]


def test_several_free_axes_move_together() -> None:
    """Samples grow with the longest list of sizes, not with the product of all lists."""
    axes = {"h": FreeAxis(max=9, warm=(1, 2, 3)), "w": FreeAxis(max=9, warm=(4, 5))}
    warmup = automatic([TensorInfo("x", "FP32", (-1, -1), ("h", "w"))], [1], axes, {}, {})
    assert [sample.inputs["x"].shape for sample in warmup.samples] == [(1, 4), (2, 5), (3, 5)]


def test_an_axis_without_bounds_turns_warmup_off_and_says_so() -> None:
    """A size made up could keep the model from loading, so there is a note instead."""
    warmup = automatic([TensorInfo("x", "FP32", (-1,), ("unk__0",))], [1], {}, {}, {})
    assert warmup.samples == ()
    assert "network.free_axes" in warmup.note


def test_bytes_without_an_example_turn_warmup_off_and_say_so() -> None:
    """Nobody can make up an image."""
    warmup = automatic([TensorInfo("image", "BYTES", (1,))], [1], {}, {}, {})
    assert warmup.samples == ()
    assert "example for the BYTES input image" in warmup.note


def test_examples_are_serialized_with_their_length() -> None:
    """BYTES carry 4 little-endian bytes of length before each element."""
    warmup = automatic([TensorInfo("text", "BYTES", (2,))], [1], {}, {"text": b"abc"}, {})
    data = warmup.samples[0].inputs["text"]
    assert (data.data, data.file) == (None, "text")
    assert warmup.files["text"] == (struct.pack("<I", 3) + b"abc") * 2 == serialize(b"abc", 2)


def test_names_of_files_are_safe_and_apart() -> None:
    """Input names that a file system cannot hold, or that collide when cleaned, get names of their own."""
    tensors = [TensorInfo(name, "BYTES", (1,)) for name in ("a/b:0", "a_b_0")]
    warmup = automatic(tensors, [1], {}, {"a/b:0": b"x", "a_b_0": b"y"}, {})
    assert warmup.files == {"a_b_0": serialize(b"x"), "a_b_0_2": serialize(b"y")}


PYTHON = {
    "python": "server.py",
    "inputs": {"x": {"dtype": "FP32", "shape": [4]}},
    "outputs": {"y": {"dtype": "FP32", "shape": [4]}},
}


@pytest.mark.parametrize(("serving", "expected"), [({}, []), ({"model_warmup": "auto"}, ["batch-1", "batch-64"])])
def test_python_of_ones_own_is_warmed_up_where_it_asks(
    serving: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    """Without a request for warm-up nothing is sent, because nobody knows which input the Python accepts."""
    assert names(python_net({"serving": serving}, "", tmp_path)) == expected


@pytest.mark.parametrize(
    ("code", "calls", "note", "parameter"),
    [
        ('pb.InferenceRequest(model_name="leaf")', None, "its Python calls leaf", None),
        ("NAME = 'leaf'\npb.InferenceRequest(model_name=NAME)", None, "its Python calls leaf", None),
        ("InferenceRequest(model_name=name())", None, "whose name is computed", None),
        ('pb.InferenceRequest(model_name="leaf")', ["tree", "leaf"], "", "tree leaf"),
        ('pb.InferenceRequest(model_name="leaf")', [], "", ""),
        ("pb.InferenceRequest(", None, "", None),
    ],
)
def test_models_that_python_calls_are_named(
    code: str, calls: list[str] | None, note: str, parameter: str | None, tmp_path: Path
) -> None:
    """The spec's names are for `serve`; a note names calls that the spec leaves out. Nothing is run."""
    network = PYTHON if calls is None else {**PYTHON, "calls": calls}
    (plan,) = python_net({"network": network}, code, tmp_path).plans()
    assert any(note in text for text in plan.notes if "Python calls" in text) == bool(note)
    assert plan.parameters.get("tritonkit.calls") == parameter


def python_net(model: dict[str, Any], code: str, root: Path) -> Case:
    """A network that is a model.py."""
    model = {"name": "net", "network": PYTHON, **model}
    return net({}, root, model=model, files={"server.py": code, "model.py": code}, file="model.py")


def test_warmup_that_is_off_is_said_to_serve_too(tmp_path: Path) -> None:
    """The parameter keeps `serve` from sending a first request too."""
    (plan,) = net({"model_warmup": "off"}, tmp_path).plans()
    assert plan.parameters["tritonkit.warmup"] == "off"
    (plan,) = net({}, tmp_path / "other").plans()
    assert "tritonkit.warmup" not in plan.parameters


def test_an_optional_input_is_left_out() -> None:
    """The input is left out unless it has an example; a listed sample may leave it out too."""
    tensors = [TensorInfo("x", "FP32", (4,)), TensorInfo("b", "FP32", (-1,), optional=True)]
    (sample,) = automatic(tensors, [1], {}, {}, {}).samples
    assert list(sample.inputs) == ["x"]
    text = TensorInfo("t", "BYTES", (1,), optional=True)
    assert list(automatic([text], [1], {}, {}, {}).samples[0].inputs) == []
    (sample,) = automatic([text], [1], {}, {"t": b"a"}, {}).samples
    assert sample.inputs["t"].file == "t"


@pytest.mark.parametrize(
    ("control", "content"),
    [
        ({"kind": "start"}, struct.pack("<f", 1)),
        ({"kind": "end", "dtype": "INT32", "false_true": (5, 7)}, struct.pack("<i", 7)),
        ({"kind": "ready", "dtype": "BOOL"}, b"\x01"),
        ({"kind": "corrid", "dtype": "UINT64"}, struct.pack("<Q", 1)),
        ({"kind": "corrid", "dtype": "BYTES"}, struct.pack("<I", 1) + b"1"),
    ],
)
def test_control_inputs_say_that_a_sequence_begins_and_ends(control: dict[str, Any], content: bytes) -> None:
    """Control inputs are in the samples, because Triton's own warm-up bypasses its sequence batcher."""
    controls = {"C": ControlInput(**control)}
    warmup = automatic([TensorInfo("x", "FP32", (4,))], [1], {}, {}, controls)
    (sample,) = warmup.samples
    assert (sample.inputs["C"].shape, warmup.files[str(sample.inputs["C"].file)]) == ((1,), content)


def listed(data: dict[str, Any], root: Path, **more: Any) -> Case:
    """A network with one listed sample whose only input is `data`."""
    return net({"model_warmup": [{"name": "s", "inputs": {"x": data}}]}, root, **more)


def test_a_listed_file_is_published_as_it_is(tmp_path: Path) -> None:
    """Numbers in a file are taken byte for byte."""
    data = {"file": "four.bin", "dtype": "FP32", "shape": [4]}
    (plan,) = listed(data, tmp_path, files={"four.bin": "0123456789abcdef"}).plans()
    assert plan.warmup_files == {"x": b"0123456789abcdef"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"data": "zero", "dtype": "FP16", "shape": [4]}, "FP16 [4]"),
        ({"data": "zero", "dtype": "FP32", "shape": [5]}, "FP32 [5]"),
        ({"data": "zero", "dtype": "FP32", "shape": [1, 4]}, "FP32 [1, 4]"),
        ({"file": "four.bin", "dtype": "FP32", "shape": [4]}, "four.bin has 3 bytes"),
    ],
)
def test_a_listed_sample_that_triton_would_refuse_is_refused(data: dict[str, Any], words: str, tmp_path: Path) -> None:
    """dtype, shape and the size of a file are checked against the input."""
    with pytest.raises(RenderError) as error:
        listed(data, tmp_path, files={"four.bin": "abc"}).plans()
    assert words in error.value.found
    assert "serving.model_warmup.s.inputs.x" in error.value.where


def test_a_listed_sample_names_every_input(tmp_path: Path) -> None:
    """A missing or unknown input is refused."""
    serving = {"model_warmup": [{"name": "s", "inputs": {"z": {"data": "zero", "dtype": "FP32", "shape": [4]}}}]}
    with pytest.raises(RenderError, match=r"serving\.model_warmup\.s\.inputs"):
        net(serving, tmp_path).plans()


@pytest.mark.parametrize("names", [("x",), ("x", "b")])
def test_a_listed_sample_may_leave_out_an_optional_input(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Made-up requests never have it."""
    zeros = {"data": "zero", "dtype": "FP32", "shape": [4]}
    spec = yaml.safe_load((HERE / "specs" / "optional_input.yaml").read_text())
    spec["model"]["serving"] = {"model_warmup": [{"name": "s", "inputs": dict.fromkeys(names, zeros)}]}
    (plan,) = make_case("optional_input", spec, tmp_path).plans()
    assert tuple(plan.warmup[0].inputs) == names


def test_an_example_no_client_sends_is_refused(tmp_path: Path) -> None:
    """A misspelled example name would otherwise turn warm-up off."""
    model = {
        "name": "net",
        "network": {
            "python": "model.py",
            "inputs": {"text": {"dtype": "BYTES", "shape": [1]}},
            "outputs": {"y": {"dtype": "FP32", "shape": [4]}},
        },
        "example": {"txet": {"text": "a"}},
    }
    signature = {"inputs": {"text": ["BYTES", [1]]}, "outputs": {"y": ["FP32", [4]]}}
    facts = {"model": model, "signature": signature, "file": "model.py"}
    with pytest.raises(RenderError) as error:
        make_case("net", facts, tmp_path).plans()
    assert error.value.wanted == "one of text"


@pytest.mark.parametrize(
    ("memory_mib", "seconds", "size"),
    [(1, 0.01, 64), (17, 0.01, 32), (88, 0.1, 8), (600, 0.1, 1), (9000, 0.1, 1), (1, 1.5, 32), (0, 99, 1)],
)
def test_the_largest_batch_can_be_warmed_up(memory_mib: int, seconds: float, size: int, tmp_path: Path) -> None:
    """The batch stays within 1 GiB and 60 s of a core, by one item; a note gives the reason. The spec's value wins."""
    start = StartNeeds(memory_mib << 20, seconds)

    def plan(serving: dict[str, Any], where: str) -> ModelPlan:
        case = net(serving, tmp_path / where)
        case = replace(case, artifact=replace(case.artifact, start=start))
        return case.plans()[0]

    default = plan({}, "a")
    assert default.max_batch_size == size
    assert [sample.batch_size for sample in default.warmup] == sorted({1, size})
    assert any(f"max_batch_size is {size}:" in note for note in default.notes) == (size < 64)
    own = plan({"max_batch_size": 64}, "b")
    assert own.max_batch_size == 64
    assert any("warning: warming up batches of 64" in note for note in own.notes) == (size < 64)


def test_an_item_of_the_build_warms_up_where_zeros_do_not(tmp_path: Path) -> None:
    """The sample's bytes lie next to the configuration; if no sample is small enough, a note says so."""
    item = {"x": GivenInput((4,), b64encode(b"0123456789abcdef").decode())}
    case = net({"max_batch_size": 2}, tmp_path)
    case = replace(case, artifact=replace(case.artifact, start=StartNeeds(1, 0.1, True, item)))
    (plan,) = case.plans()
    assert [(sample.batch_size, sample.inputs["x"].shape) for sample in plan.warmup] == [(1, (4,)), (2, (4,))]
    assert plan.warmup_files == {"x": b"0123456789abcdef"}
    case = replace(case, artifact=replace(case.artifact, start=StartNeeds(1, 0.1, True)))
    (plan,) = case.plans()
    assert plan.warmup == ()
    assert any("refuses zeros" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("serving", "noted"),
    [
        ({}, True),
        ({"max_batch_size": 8}, True),
        ({"max_batch_size": 8, "dynamic_batching": False}, False),
        ({"max_batch_size": 1}, False),
        ({"independent_items": True}, False),
    ],
)
def test_batches_of_python_of_ones_own_are_not_proven(serving: dict[str, Any], noted: bool, tmp_path: Path) -> None:
    """A build does not run it, so a note says what can try it; only a declaration tells the client that items are
    independent."""
    (plan,) = python_net({"serving": serving}, "", tmp_path).plans()
    notes = [note for note in plan.notes if note.startswith("net: not proven")]
    assert len(notes) == noted
    assert all("tritonkit check-batching net" in note for note in notes)
    declared = "declared" if "independent_items" in serving else None
    assert plan.parameters.get("tritonkit.independent_items") == declared


def test_batches_of_a_step_of_ones_own_are_not_proven(tmp_path: Path) -> None:
    """A step is named by its own model and section; tritonkit's own steps are held to it by its tests."""
    contract = "description: a step\ninputs: {a: {dtype: FP32, shape: [4]}}\noutputs: {x: {dtype: FP32, shape: [4]}}\n"
    files = {"steps/mine/step.yaml": contract, "steps/mine/model.py": ""}
    model = {"name": "net", "network": {"onnx": "model.onnx"}, "pipeline": [{"step": "mine"}, "network"]}
    step, network, _ = net({}, tmp_path, model=model, files=files).plans()
    [note] = [note for note in step.notes if "not proven" in note]
    assert note.startswith("net_mine: not proven")
    assert "tritonkit check-batching net_mine" in note
    assert "pipeline.0.serving.independent_items" in note
    assert not any("not proven" in note for note in network.notes)
