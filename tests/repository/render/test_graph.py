"""Ensembles of several networks: fan-out, joins, models of other specs, and what an ensemble cannot have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tritonkit.errors import SpecError, UsageError
from tritonkit.perf.tune.candidates import refuse
from tritonkit.repository.inspection import Inspection, inspect_model

PROBE = {"name": "probe", "network": {"onnx": "probe.onnx"}}


def network(inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], taken: int = TensorProto.FLOAT) -> bytes:
    """An ONNX file with inputs of one type and FP32 outputs of these shapes, which are the first input."""
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in given.items()]
        for given, kind in ((inputs, taken), (outputs, TensorProto.FLOAT))
    ]
    nodes = [helper.make_node("Cast", [next(iter(inputs))], [name], to=TensorProto.FLOAT) for name in outputs]
    graph = helper.make_graph(nodes, "g", *values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


FILES = {
    "probe__onnx": network({"x": ["batch", 4]}, {"y": ["batch", 4]}),
    "both__onnx": network({"x": ["batch", 4]}, {"y": ["batch", 4], "z": ["batch", 4]}),
    "ints__onnx": network({"x": ["batch", 4]}, {"y": ["batch", 4]}, TensorProto.INT64),
    "wide__onnx": network({"x": ["batch", 8]}, {"y": ["batch", 8]}),
    "one__onnx": network({"x": [4]}, {"y": [4]}),
    "tags__onnx": network({"input_ids": ["batch", "length"]}, {"logits": ["batch", "length", 2]}, TensorProto.INT64),
    "sum__onnx": network({"a": ["batch", 4], "b": ["batch", 4]}, {"s": ["batch", 4]}),
}
SUM = {"name": "sum", "network": {"onnx": "sum.onnx"}, "inputs": {"a": "left", "b": "right"}}


def part(name: str, outputs: str = "", inputs: str = "", file: str = "probe", **serving: Any) -> dict[str, Any]:
    """An entry with a network x -> y, whose tensors have other names in the pipeline."""
    entry: dict[str, Any] = {"name": name, "network": {"onnx": f"{file}.onnx"}, "serving": serving}
    return entry | ({"outputs": {"y": outputs}} if outputs else {}) | ({"inputs": {"x": inputs}} if inputs else {})


DIAMOND = [part("first", "z"), part("one", "left", "z"), part("two", "right", "z"), SUM]


@pytest.fixture
def inspected(write_model: WriteModel) -> Any:
    """A function that writes the pipeline `page`, and says what a build would make of it."""

    def inspect(pipeline: list[Any], **more: Any) -> Inspection:
        text = yaml.safe_dump({"name": "page", "pipeline": pipeline, **more}, sort_keys=False)
        return inspect_model(write_model(text, "page", **FILES), "cpu", 2)

    return inspect


def test_a_diamond_is_one_ensemble(inspected: Any) -> None:
    """One network feeds two, whose answers a fourth joins; the parent makes the ensemble alone."""
    seen = inspected(DIAMOND)
    assert seen.unknown == ()
    (ensemble,) = seen.models
    assert [step.model for step in ensemble.steps] == ["page_first", "page_one", "page_two", "page_sum"]
    assert ensemble.steps[0].output_map == {"y": "z"}
    assert ensemble.steps[1].input_map == ensemble.steps[2].input_map == {"x": "z"}
    assert ensemble.steps[3].input_map == {"a": "left", "b": "right"}
    assert [str(tensor) for tensor in (*ensemble.inputs, *ensemble.outputs)] == ["x FP32 [4]", "s FP32 [4]"]
    assert seen.graph.lines() == [
        "page: a pipeline of 4 models, batches of up to 64",
        "  callers",
        "    x FP32 [4] -> page_first",
        "  page_first (onnxruntime, batches of up to 64)",
        "    z FP32 [4] -> page_one, page_two",
        "  page_one (onnxruntime, batches of up to 64)",
        "    left FP32 [4] -> page_sum",
        "  page_two (onnxruntime, batches of up to 64)",
        "    right FP32 [4] -> page_sum",
        "  page_sum (onnxruntime, batches of up to 64)",
        "    s FP32 [4] -> callers",
    ]


def test_the_smallest_batch_bounds_the_ensemble(inspected: Any) -> None:
    """The spec may give less, and not more."""
    small = [part("first", "z", max_batch_size=16), part("last", inputs="z", max_batch_size=4)]
    assert inspected(small).models[-1].max_batch_size == 4
    assert inspected(small, serving={"max_batch_size": 2}).models[-1].max_batch_size == 2
    (error,) = inspected(small, serving={"max_batch_size": 8}).unknown
    assert "page/model.yaml serving.max_batch_size: 8, and page_first has max_batch_size 16" in error
    assert "1 to 4" in error


def test_callers_tensors_can_be_listed(inspected: Any) -> None:
    """Listed ones are sent to later parts too; a tensor that a part takes can be an answer as well, and one that no
    part takes can be left out."""
    towers = [part("query", "left", "q"), part("item", "right", "i"), SUM]
    listed = inspected(towers, ensemble={"inputs": ["q", "i"], "outputs": ["left", "s"]}).models[-1]
    assert [tensor.name for tensor in listed.inputs] == ["q", "i"]
    assert [tensor.name for tensor in listed.outputs] == ["left", "s"]
    heads = [part("first", "z"), part("one", "left", "z"), part("two", "right", "z")]
    two = inspected(heads, ensemble={"outputs": ["left", "right"]}).models[-1]
    assert [tensor.name for tensor in two.outputs] == ["left", "right"]


def test_one_model_can_be_in_a_pipeline_twice(inspected: Any, write_model: WriteModel) -> None:
    """Each time under a name of its own."""
    write_model("name: encoder\nnetwork: {onnx: probe.onnx}\n", "encoder", **FILES)
    two = [
        {"model": "encoder", "name": name, "inputs": {"x": name}, "outputs": {"y": side}}
        for name, side in (("query", "left"), ("item", "right"))
    ]
    seen = inspected([*two, SUM], ensemble={"inputs": ["query", "item"]})
    assert seen.unknown == ()
    assert [step.model for step in seen.models[-1].steps] == ["encoder", "encoder", "page_sum"]
    assert [node.name for node in seen.graph.nodes] == ["encoder #1", "encoder #2", "page_sum"]
    assert "two parts called 'encoder'" in str(refused(inspected, [{"model": "encoder"}, {"model": "encoder"}, SUM]))


def refused(inspected: Any, pipeline: list[Any], **more: Any) -> str:
    """The error with which a pipeline is refused."""
    try:
        (error,) = inspected(pipeline, **more).unknown
    except SpecError as problem:
        return str(problem)
    return str(error)


FIRST, LAST = part("first", "z"), part("last", inputs="z")
MISSPELLED = {**SUM, "inputs": {"a": "z", "b": "rigth"}}
CYCLE = [FIRST, {**SUM, "inputs": {"a": "z", "b": "late"}, "outputs": {"s": "t"}}, part("last", "late", "t")]
TWICE = {"name": "both", "network": {"onnx": "both.onnx"}, "inputs": {"x": "z"}, "outputs": {"y": "s", "z": "s"}}
UNBATCHED = part("last", inputs="z", max_batch_size=0, file="one")


@pytest.mark.parametrize(
    ("pipeline", "ensemble", "where", "message"),
    [
        ([FIRST, part("dead", "w", "z"), LAST], {}, "pipeline.dead", "page_dead gives y FP32 [4], and no later part"),
        ([FIRST, part("last", inputs="zz")], {}, "pipeline.last", "a tensor that is there: 'z'"),
        ([FIRST, part("last", inputs="z", file="ints")], {}, "pipeline.last", "page_last takes x INT64 [4]"),
        (
            [FIRST, part("wide", inputs="z", file="wide")],
            {},
            "pipeline.wide",
            "tensor z: page_first gives y FP32 [4]; page_wide takes x FP32 [8]",
        ),
        ([FIRST, MISSPELLED], {}, "pipeline.sum", "page_sum takes rigth, which no part before it gives"),
        (CYCLE, {}, "pipeline.sum", "takes late, which page_last gives only after it"),
        ([FIRST, LAST], {"outputs": ["yy"]}, "ensemble.outputs", "yy, which no part of the pipeline gives"),
        ([FIRST, LAST], {"outputs": ["z"]}, "pipeline.last", "one of its outputs under ensemble.outputs"),
        ([FIRST, LAST], {"inputs": ["x", "w"]}, "ensemble.inputs", "w, which no part of the pipeline takes"),
        (
            [FIRST, LAST],
            {"inputs": ["x", "z"]},
            "ensemble.inputs",
            "z, which no part of the pipeline takes from",
        ),
        ([FIRST, TWICE], {"outputs": ["s"]}, "pipeline.both", "gives y FP32 [4] and z FP32 [4] under one name"),
        ([FIRST, LAST], {"inputs": ["w"]}, "pipeline.first", "page_first takes x"),
        ([FIRST, UNBATCHED], {}, "page/model.yaml pipeline", "page_last has max_batch_size 0"),
        ([FIRST, {**LAST, "inputs": {"w": "z"}}], {}, "pipeline.last.inputs", "page_last has no input 'w'"),
        ([FIRST, part("last", inputs="z", decoupled=True)], {}, "pipeline.last", "any number of responses"),
    ],
)
def test_what_does_not_fit_names_its_place(
    inspected: Any, pipeline: list[Any], ensemble: dict[str, Any], where: str, message: str
) -> None:
    """Tensors, batches and models that an ensemble cannot have."""
    error = refused(inspected, pipeline, **({"ensemble": ensemble} if ensemble else {}))
    assert message in error
    assert where in error


def test_a_model_that_keeps_sequences_gets_each_request_once(inspected: Any, write_model: WriteModel) -> None:
    """It can be in a pipeline; not twice, and not behind answers that are kept or requests that are repeated."""
    state = "name: state\nnetwork: {onnx: probe.onnx}\nserving: {sequence_batching: {direct: {}}}\n"
    write_model(state, "state", **FILES)
    assert inspected([{"model": "state"}]).unknown == ()
    error = refused(inspected, [{"model": "state"}], serving={"response_cache": True})
    assert "serving.response_cache" in error
    twice = [{"model": "state", "outputs": {"y": "z"}}, {"model": "state", "name": "more", "inputs": {"x": "z"}}]
    assert "state several times" in refused(inspected, twice)


def test_a_network_of_the_spec_itself_can_be_among_them(inspected: Any) -> None:
    """It is called as in a pipeline with one network."""
    seen = inspected([part("first", "z"), "network"], network={"onnx": "sum.onnx"}, ensemble={"inputs": ["x", "b"]})
    assert "page_network takes a, which no part before it gives" in seen.unknown[0]
    seen = inspected([part("first", "a"), "network"], network={"onnx": "sum.onnx"}, ensemble={"inputs": ["x", "b"]})
    assert seen.unknown == ()
    assert [plan.name for plan in seen.models] == ["page_network", "page"]
    assert [step.model for step in seen.models[-1].steps] == ["page_first", "page_network"]


def test_a_network_of_its_own_takes_windows(inspected: Any, root: Path) -> None:
    """It batches those of a document, which is one request."""
    (root / "models" / "page").mkdir()
    (root / "models" / "page" / "tokenizer.json").write_text("{}")
    (root / "models" / "page" / "labels.txt").write_text("O\nB-PER\n")
    tokenize = {"tokenizer": "tokenizer.json", "offsets": True, "windows": True, "max_length": 64}
    tagger = {"onnx": "tags.onnx", "free_axes": {"length": {"max": 64}}}
    parts = [
        {"step": "tokenize", "parameters": tokenize},
        {"name": "tagger", "network": tagger},
        {"step": "aggregate_tokens", "parameters": {"labels": "labels.txt", "windows": True}},
    ]
    seen = inspected(parts)
    assert seen.unknown == ()
    assert [plan.max_batch_size for plan in seen.models] == [0, 0, 0]
    assert seen.models[-1].steps[1].model == "page_tagger"
    parts[1]["serving"] = {"max_batch_size": 4}
    assert "a document has up to" in refused(inspected, parts)


def test_commands_for_one_network_refuse_several(inspected: Any) -> None:
    """The error names those that can be tuned by themselves."""
    with pytest.raises(UsageError, match=r"tritonkit tune page_first, tritonkit tune page_one, .*page_sum$"):
        refuse(inspected(DIAMOND).spec)


def test_steps_take_the_batches_of_the_networks(inspected: Any) -> None:
    """In a pipeline without a network of its own, too."""
    step = {"step": "normalize", "inputs": {"embedding": "y"}, "parameters": {"dimension": 4}}
    step, ensemble = inspected([part("first", max_batch_size=16), step]).models
    assert step.max_batch_size == ensemble.max_batch_size == 16
