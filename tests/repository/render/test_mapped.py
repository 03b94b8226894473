"""`map:` of a pipeline: the Python model that it becomes, and what cannot be mapped."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tritonkit.errors import SpecError
from tritonkit.repository.inspection import Inspection, inspect_model

DTYPES = {"x": TensorProto.FLOAT, "pixels": TensorProto.FLOAT, "count": TensorProto.INT32, "box": TensorProto.FLOAT}


def network(inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], **dtypes: int) -> bytes:
    """An ONNX file whose outputs are zeros."""
    dtypes = dict.fromkeys((*inputs, *outputs), TensorProto.FLOAT) | dtypes
    values = [
        [helper.make_tensor_value_info(name, dtypes[name], shape) for name, shape in given.items()]
        for given in (inputs, outputs)
    ]
    first = next(iter(inputs))
    nodes = [
        helper.make_node("ReduceMin", [first], ["low"], keepdims=0),
        helper.make_node("Mul", ["low", "low"], ["number"]),
    ]
    for name in outputs:
        nodes += [
            helper.make_node("Shape", [first], [f"{name}_all"]),
            helper.make_node("Gather", [f"{name}_all", "zero"], [f"{name}_batch"]),
            helper.make_node("Concat", [f"{name}_batch", f"{name}_dims"], [f"{name}_shape"], axis=0),
            helper.make_node("Expand", ["number", f"{name}_shape"], [f"{name}_floats"]),
            helper.make_node("Cast", [f"{name}_floats"], [name], to=dtypes[name]),
        ]
    sizes = {"zero": [0]} | {
        f"{name}_dims": [size if isinstance(size, int) else 3 for size in shape[1:]] for name, shape in outputs.items()
    }
    constants = [helper.make_tensor(name, TensorProto.INT64, [len(value)], value) for name, value in sizes.items()]
    graph = helper.make_graph(nodes, "g", *values, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


CROP = {"items": ["batch", "n", 3, 8], "count": ["batch", 1], "fixed": ["batch", 5, 3, 8], "late": ["batch", "n"]}
FILES = {
    "crop__onnx": network({"page": ["batch", 4]}, CROP, count=TensorProto.INT32),
    "net__onnx": network({"x": ["batch", 3, 8]}, {"y": ["batch", 2], "score": ["batch", 1]}),
    "one__onnx": network({"x": [3, 8]}, {"y": [2]}),
    "pair__onnx": network({"x": ["batch", 3, 8], "scale": ["batch", 1]}, {"y": ["batch", 2]}),
}
NET = {"name": "net", "network": {"onnx": "net.onnx"}}
CROPS = {"name": "crop", "network": {"onnx": "crop.onnx"}}


def texts(over: str = "items", pipeline: Any = (NET,), **more: Any) -> dict[str, Any]:
    """An entry with a map."""
    keys = {"count", "max_in_flight", "ensemble", "example"}
    items = {"over": [over], "pipeline": list(pipeline)} | {key: more.pop(key) for key in keys & more.keys()}
    return {"name": "texts", "map": items, "inputs": {"x": over}} | more


@pytest.fixture
def inspected(write_model: WriteModel) -> Any:
    """A function that writes the pipeline `page`, and says what a build would make of it."""

    def inspect(*pipeline: Any, **more: Any) -> Inspection:
        more.setdefault("ensemble", {"outputs": ["y"]})
        text = yaml.safe_dump({"name": "page", "pipeline": list(pipeline), **more}, sort_keys=False)
        return inspect_model(write_model(text, "page", **FILES), "cpu", 2)

    return inspect


def test_a_map_is_a_python_model(inspected: Any) -> None:
    """It has the items in front of the callee's tensors, knows the callee and the bound, and comes with its Python."""
    seen = inspected(CROPS, texts(count="count"))
    assert seen.unknown == ()
    mapped, ensemble = seen.models
    assert (mapped.name, mapped.backend, mapped.max_batch_size) == ("page_texts", "python", 64)
    assert [str(tensor) for tensor in mapped.inputs] == ["x FP32 [-1,3,8]", "count INT32 [1]"]
    assert [str(tensor) for tensor in mapped.outputs] == ["y FP32 [-1,2]", "score FP32 [-1]"]
    assert [tensor.ragged for tensor in mapped.inputs] == [True, False]
    assert mapped.parameters == {
        "callee": "page_texts_item",
        "callee_batch_size": "64",
        "over": "x",
        "count": "count",
        "one_value": "score",
        "max_in_flight": "128",
        "tritonkit.calls": "page_texts_item",
    }
    assert sorted(mapped.version_files) == ["map_core.py", "model.py", "step_support.py"]
    assert [group.count for group in mapped.instances] == [2]
    assert mapped.notes == ()
    assert ensemble.steps[1].input_map == {"x": "items", "count": "count"}
    assert ensemble.steps[1].output_map == {"y": "y"}


def test_settings_of_a_map(inspected: Any) -> None:
    """Items in flight, instances and the batch of requests are the spec's; tensors have other names in the pipeline."""
    entry = texts(
        count="count",
        max_in_flight=7,
        outputs={"y": "z"},
        serving={"instance_group": [{"count": 3}], "max_batch_size": 4},
    )
    mapped, ensemble = inspected(CROPS, entry, ensemble={"outputs": ["z"]}).models
    assert mapped.parameters["max_in_flight"] == "7"
    assert mapped.instances[0].count == 3
    assert (mapped.max_batch_size, ensemble.max_batch_size) == (4, 4)
    assert [str(tensor) for tensor in ensemble.outputs] == ["z FP32 [-1,2]"]


def test_a_fixed_number_of_items_with_counts(inspected: Any) -> None:
    """Padded tensors have as many items out as in."""
    mapped, _ = inspected(CROPS, texts("fixed", count="count")).models
    assert [str(tensor) for tensor in mapped.outputs] == ["y FP32 [5,2]", "score FP32 [5]"]


def test_other_inputs_are_the_same_for_all_items(inspected: Any) -> None:
    """They keep their shape; callers may send them, and the items too."""
    entry = texts(pipeline=[{"name": "net", "network": {"onnx": "pair.onnx"}}])
    mapped, ensemble = inspected(entry).models
    assert [str(tensor) for tensor in mapped.inputs] == ["x FP32 [-1,3,8]", "scale FP32 [1]"]
    assert "count" not in mapped.parameters
    assert [str(tensor) for tensor in ensemble.inputs] == ["items FP32 [-1,3,8]", "scale FP32 [1]"]
    assert ensemble.max_batch_size == 8


def test_a_callee_without_batches(inspected: Any) -> None:
    """Each item is a call of its own."""
    entry = texts(pipeline=[{"name": "net", "network": {"onnx": "one.onnx"}}])
    mapped, _ = inspected(CROPS, entry, ensemble={"outputs": ["y"]}).models
    assert mapped.parameters["callee_batch_size"] == "0"
    assert mapped.parameters["max_in_flight"] == "64"
    assert mapped.max_batch_size == 64


def test_what_runs_for_an_item_is_a_spec(write_model: WriteModel) -> None:
    """It and its networks have names of their own, by which they are built, tuned and called."""
    inner = {"name": "inner", "map": {"over": ["x"], "pipeline": [NET]}}
    text = yaml.safe_dump({"name": "page", "pipeline": [CROPS, texts(pipeline=[inner])]})
    assert [spec.name for spec in write_model(text, "page", **FILES).tree] == [
        "page_crop",
        "page_texts_item_inner_item_net",
        "page_texts_item_inner_item",
        "page_texts_item",
        "page",
    ]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (texts("fixed"), "pipeline.texts.map.over: fixed has 5 items in every request"),
        (texts("count"), "pipeline.texts.map.over: count [1], and page_texts_item takes x FP32 [3,8]"),
        (texts("nothing"), "page_texts takes nothing, which no part before it gives"),
        (
            texts() | {"inputs": {}},
            "pipeline.texts.map.over: items, which the pipeline of the items does not take",
        ),
        (texts(count="items"), "pipeline.texts.map.count: items FP32 [-1,3,8]"),
        (texts(count="late"), "pipeline.texts.map.count: late FP32 [-1]"),
        (texts(inputs={"x": "items", "w": "count"}), "pipeline.texts.inputs: page_texts_item has no input 'w'"),
        (texts(outputs={"w": "z"}), "pipeline.texts.outputs: page_texts_item has no output 'w'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_tensors_that_cannot_be_mapped(inspected: Any, entry: Any, found: str) -> None:
    """One message with the place in the yaml."""
    [unknown] = inspected(CROPS, entry).unknown
    assert found in unknown


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (texts(pipeline=["network"]), "wanted: a network of its own: {name:, network:}"),
        (texts(serving={"decoupled": True}), "serving has decoupled"),
        (texts(pipeline=[]), "at least 1"),
        (texts(max_in_flight=0), "max_in_flight"),
        (texts(pipeline=[{"step": "top_k"}]), "pipeline has no network"),
        (texts(wrong=1), "wrong"),
        (texts(pipeline=[{"model": "page"}]), "a cycle: page -> page_texts_item -> page"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_entries_that_are_refused(inspected: Any, entry: Any, found: str) -> None:
    """When the file is read."""
    with pytest.raises(SpecError) as caught:
        inspected(CROPS, entry)
    assert found in str(caught.value)
    assert "texts" in caught.value.where or "pipeline.1" in caught.value.where


@pytest.mark.parametrize("depth", [0, 1])
def test_an_item_has_one_answer(inspected: Any, depth: int) -> None:
    """A network that gives any number of them is refused, also in a map of a map."""
    parts = [{**NET, "serving": {"decoupled": True}}]
    if depth:
        parts = [{"name": "inner", "map": {"over": ["x"], "pipeline": parts}}]
    [unknown] = inspected(CROPS, texts(pipeline=parts)).unknown
    assert "page/model.yaml pipeline.texts.map.pipeline." in unknown
    assert "any number of responses to a request (decoupled)" in unknown


def test_items_have_no_sequences(inspected: Any) -> None:
    """A request's items are in no order of their own."""
    net = {**NET, "serving": {"sequence_batching": {"direct": {}}}}
    [unknown] = inspected(CROPS, texts(pipeline=[net])).unknown
    assert "keeps state between the requests of a sequence" in unknown
